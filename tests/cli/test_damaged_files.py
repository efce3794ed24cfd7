"""Files that were damaged, and files that announce more than there is: refused, in 3 GiB."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hostile import AT_OTHER_RATES, BOMBS
from mutants import FORMATS
from varfilter import load

SCRIPT = Path(__file__).parent.parent / "mutants.py"


def results(*words):
    """The lines of the script in a process of its own, which must come to its end."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


# In two processes: the libraries of all formats together take most of the 3 GiB.
FILES, RECORDINGS = list(FORMATS)[:14], list(FORMATS)[14:]


@pytest.mark.parametrize("kinds", [FILES, RECORDINGS], ids=["files", "recordings"])
def test_some_damaged_files_of_every_format(kinds):
    found = results(10, 0, *kinds)
    assert [each["format"] for each in found] == kinds
    for each in found:
        assert each["failures"] == []
        assert sum(each["ends"].values()) == 10
        # Otherwise the damage was none.
        assert each["ends"].get("2", 0) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_many_damaged_files(kind):
    (found,) = results(200, 0, kind)
    assert found["failures"] == []
    assert sum(found["ends"].values()) == 200


@pytest.mark.parametrize("name", AT_OTHER_RATES)
def test_sound_that_would_be_made_anew_out_of_nothing(name, tmp_path):
    place = AT_OTHER_RATES[name](tmp_path)
    with pytest.raises(ValueError, match="at 16000 Hz"):
        load(place, rate=16000)


def test_files_that_announce_more_than_memory_holds(tmp_path):
    places = []
    for number, (write, *_) in enumerate(BOMBS.values()):
        (tmp_path / str(number)).mkdir()
        places.append(write(tmp_path / str(number)))
    # None of them is large itself.
    assert max(path.stat().st_size for path in tmp_path.rglob("*.*")) < 10 << 20
    for (name, (_, *words)), (code, said) in zip(
        BOMBS.items(), results("check", *places), strict=True
    ):
        assert code == 2, (name, code, said)
        for word in words:
            assert word in said, f"{name}: {word!r} is not in: {said}"
