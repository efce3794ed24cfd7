"""The pages of docs/ as their readers use them: blocks of code, commands, and what they need."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# Those that are written by hand; the reference is made of docstrings.
PAGES = sorted([*DOCS.glob("*.md"), *(DOCS / "tutorials").glob("*.md")])


def blocks(page, language):
    """The blocks of a page in a language, such as "sh"."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def python_of(*pages):
    """The Python of pages, block after block, as one program."""
    return "\n".join(block for page in pages for block in blocks(page, "python"))


def commands_of(page, *languages):
    """The words behind `varfilter` of each command of a page, as they stand in its blocks."""
    found = []
    for language in languages or ("sh",):
        for block in blocks(page, language):
            for line in block.splitlines():
                words = shlex.split(line) if "varfilter " in line else []
                if "varfilter" in words:
                    found.append(words[words.index("varfilter") + 1 :])
    return found


# What stands for the reader's own in a command of a sentence or a table.
OWN = {"RUN": "runs/sensors", "PATH": "readings.csv", "INPUT": "new.csv", "PICTURE": "drawn.png"}


def commands_in_prose(page):
    """The words behind `varfilter` of each command in the sentences and tables of a page.

    The name of a command alone is left out, and so is what stands for several (`[RUN ...]`), and
    the training of a run, which would have to be there.
    """
    found = re.findall(r"`varfilter ([^\s`]+\s[^`\[]+)`", page.read_text(encoding="utf-8"))
    lines = [[OWN.get(word, word) for word in shlex.split(each)] for each in found]
    return [words for words in lines if words != ["train", "runs/sensors"]]


def run_commands(page, run, *, more=None, only=None):
    """Each command of a page, as it stands there; what all of them wrote, one after another.

    `more` are options to add, by command; `only` has the first word of those that are run, or the
    first two.
    """
    written = []
    for words in commands_of(page):
        if only and words[0] not in only and " ".join(words[:2]) not in only:
            continue
        stdin = b""
        if "<" in words:  # as a shell does it
            stdin = Path(words[words.index("<") + 1]).read_bytes()
            words = words[: words.index("<")]
        done = run(*words, *(more or {}).get(words[0], ()), **({"stdin": stdin} if stdin else {}))
        assert done.code == 0, (words, done.err)
        written += [done.out, done.err]
    return "\n".join(written)


NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
# Two cores round otherwise than one, and thousands of updates make more of it: scores of one seed
# differ by some hundredths of themselves, shares of bands by some values in a hundred.
NEAR = {"rel": 0.15, "abs": 0.06}


def assert_quotes(page, written):
    """Each excerpt that a page has of what its commands write is found there.

    Its words are the same but for how lines are broken, and its numbers are near; which step was
    the best does not count. "..." stands for what a page leaves out.
    """
    written = _normal(written)
    for block in blocks(page, "text"):
        for part in re.split(r"(?<!\S)\.\.\.(?!\S)", _normal(block)):
            quoted = part.strip()
            pattern = f"({NUMBER})".join(map(re.escape, re.split(NUMBER, quoted)))
            near = pytest.approx(_values(re.findall(NUMBER, quoted)), **NEAR)
            found = [_values(each.groups()) for each in re.finditer(pattern, written)]
            assert any(each == near for each in found), (quoted, found)


def _normal(text):
    text = re.sub("[\u2500-\u257f]", " ", text)  # the lines of a table
    return re.sub(r"\bstep [\d,]+", "step N", " ".join(text.split()))


def _values(numbers):
    return [float(number.replace(",", "")) for number in numbers]


def stand_in_a_checkout(folder):
    """Copy what a reader finds at the top of a checkout, and the pages name."""
    (folder / "examples").mkdir()
    shutil.copytree(ROOT / "examples" / "data", folder / "examples" / "data")
