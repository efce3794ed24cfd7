"""How the house is built: files, lines, crumbs, who asks for the kind of data, and three walks.

    python benchmarks/house.py [--src DIR] [--walks] [--files]

It counts in a tree of sources, this one by default (`--src` another checkout's `src`):

- files and lines under `varfilter`; modules of fewer than 60 lines;
- modules that exactly one other file imports, by its import statements (a stub `__init__.pyi`
  counts as its package; names in strings do not count, nor does what a package passes on);
- files outside `media/` that ask which kind of data it is, by the patterns of `ASKS` below;
- with `--walks`, for `train x.csv`, `filter` and `report` on a tiny table, each in a process of its
  own: the modules of varfilter that are imported, and the files that are visited, which are those
  in which a function is called while the command runs.

`--files` lists what was counted. Nothing of varfilter is imported here, so that the script counts
any revision of it.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent.parent / "src"
FEWEST_LINES = 60
KINDS = "table|music|midi|sound|audio|film|video|image|array"
# What a line looks like that asks for the kind of the data.
ASKS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"""(==|!=|\bin|\bcase) *[(\[{{]? *["']({KINDS})s?["']""",
        rf"""["']({KINDS})s?["'] *(==|!=)""",
        r"\bmedium(\(\w*\)|\.name)? *(==|!=|\bis\b|\bin\b) *[^M\s]",
        r"isinstance\([^)]*\b(Table|Table(Schema|Source)|(Music|Sound|Video)Source|\w+Medium)\b",
        # The sizes of a model, of which each suits one kind.
        r"isinstance\([^)]*\b\w+Sizes\b",
        r"\btype\([\w.]*model\) *(==|is( not)?) *(\w+Sizes\b|type\(EXPERIMENTS)",
        r"\bif (run\.)?(table|is_table)\b|\btable is (not )?None|\bis_table *=",
        r"""MEDIA\[["']""",
        r"\bENDINGS_OF\b|\bNUM_KEYS\b|== \(88,\)",
    )
)
# The files that are about one kind of data only, and ask nothing: its readers, and `TableFilter`,
# which refuses the folder of a run on anything else.
OWN = re.compile(
    r"/data/(tables/.*|tables?|table_\w+|rolls|midi|songs|note_grid|music|audio|video|recordings)\.py$"
    r"|/(runs|experiments)/estimator\.py$"
)

# Run before a command. A call counts if it is of a function, not of a module or a class body, and
# not made by a module of ours while that is imported.
WALK = """
import inspect, json, os, sys, threading
root, out, *words = sys.argv[1:]
visited = set()
def is_import(frame):
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if code.co_name == "<module>" and code.co_filename.startswith(root):
            return True
    return False
def seen(frame, event, arg):
    code = frame.f_code
    if event != "call" or code.co_filename in visited or not code.co_filename.startswith(root):
        return
    if code.co_flags & inspect.CO_OPTIMIZED and not is_import(frame):
        visited.add(code.co_filename)
threading.setprofile(seen)
sys.setprofile(seen)
sys.argv, ended = ["varfilter", *words], 0
try:
    from varfilter.cli import main
    main()
except SystemExit as end:
    ended = end.code or 0
sys.setprofile(None)
modules = {m.__file__ for n, m in list(sys.modules.items()) if n.split(".")[0] == "varfilter"}
def ours(files):
    return sorted(os.path.relpath(file, root) for file in files)
with open(out, "w") as file:
    json.dump({"code": ended, "visited": ours(visited), "imported": ours(modules)}, file)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--src", type=Path, default=HERE, help="the sources to count")
    parser.add_argument("--walks", action="store_true", help="run the three commands, too")
    parser.add_argument("--files", action="store_true", help="list what was counted")
    given = parser.parse_args()
    found = counts(given.src)
    if given.walks:
        found |= walks(given.src)
    for what, value in found.items():
        print(f"{what:<48} {len(value) if isinstance(value, list) else value:>7,}")
        if given.files and isinstance(value, list):
            print("".join(f"    {line}\n" for line in value), end="")


def counts(src: Path) -> dict[str, int | list[str]]:
    """What is counted without running anything: numbers, or what there are so many of."""
    texts = {path: path.read_text(encoding="utf-8") for path in (src / "varfilter").rglob("*.py")}
    lines = {path: text.count("\n") for path, text in texts.items()}
    short = [path for path in lines if lines[path] < FEWEST_LINES]
    return {
        "files": len(lines),
        "lines": sum(lines.values()),
        f"modules of fewer than {FEWEST_LINES} lines": _relative(src, short),
        "modules imported in exactly one place": _imported_once(src, texts),
        "files outside media/ that ask for the kind": _asking(src, texts),
    }


def walks(src: Path) -> dict[str, list[str]]:
    """The files that three commands visit, and the modules they import."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = (f"{t},{t % 7 + 0.5},{t % 5 - 0.25}\n" for t in range(90))
        Path(folder, "x.csv").write_text("time,warm,cold\n" + "".join(rows))
        small = ("--max-updates", "2", "--schedule.batch-size", "2", "--quiet")
        for name, words in {
            "train x.csv": ("train", "x.csv", *small, "--out", "run"),
            "filter": ("filter", "run", "x.csv", "--out", "filtered.csv"),
            "report": ("report", "run"),
        }.items():
            walked = _walk(src, folder, words)
            found[f"files visited by {name}"] = walked["visited"]
            found[f"modules imported by {name}"] = walked["imported"]
    return found


def _walk(src: Path, folder: str, words: tuple[str, ...]) -> dict[str, list[str]]:
    out = Path(folder, "walk.json")
    done = subprocess.run(
        [sys.executable, "-c", WALK, str(src.resolve()), str(out), *words],
        env=os.environ | {"PYTHONPATH": str(src.resolve()), "JAX_PLATFORMS": "cpu"},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    walked = json.loads(out.read_text()) if done.returncode == 0 else {"code": 1}
    if walked["code"]:
        raise SystemExit(f"`varfilter {' '.join(words)}` failed:\n{done.stdout}{done.stderr}")
    return walked


def _imported_once(src: Path, texts: dict[Path, str]) -> list[str]:
    modules = {_module(src, path): path for path in texts}
    stubs = {path: path.read_text() for path in (src / "varfilter").rglob("*.pyi")}
    importers: dict[str, set[str]] = defaultdict(set)
    for path, text in {**texts, **stubs}.items():
        here = _module(src, path)
        for node in ast.walk(ast.parse(text)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in modules else node.module for name in inner]
            for name in names:
                if name in modules and name != here:
                    importers[name].add(here)
    once = [modules[name] for name, those in importers.items() if len(those) == 1]
    return _relative(src, [path for path in once if path.name != "__init__.py"])


def _asking(src: Path, texts: dict[Path, str]) -> list[str]:
    found = []
    for path, text in sorted(texts.items()):
        name = f"/{path.relative_to(src / 'varfilter').as_posix()}"
        if name.startswith("/media/") or OWN.search(name):
            continue
        asked = [
            f"{name[1:]}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if not line.lstrip().startswith(("#", "from ", "import "))
            and any(ask.search(line) for ask in ASKS)
        ]
        found += asked[:1]
    return found


def _module(src: Path, path: Path) -> str:
    parts = path.relative_to(src).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _relative(src: Path, paths: list[Path]) -> list[str]:
    return sorted(path.relative_to(src / "varfilter").as_posix() for path in paths)


if __name__ == "__main__":
    main()
