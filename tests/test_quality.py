"""The tools that keep the tree readable, as tests; and the two commands of the README."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import refuse, script, succeed

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "ruff", "check", "."],
        ["-m", "ruff", "format", "--check", "."],
        # The interpreter is named so that it finds what is installed beside these tests.
        ["-m", "basedpyright", "--pythonpath", sys.executable],
        ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
    ],
    ids=["ruff", "format", "types", "layers"],
)
def test_tool(command):
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_the_test_command_of_the_readme():
    lines = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
    assert sum("varfilter demo" in line for line in lines) == 1
    assert sum("pytest" in line for line in lines) == 1
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    # .ci/run reads the command out of the README by this pattern.
    assert r"s/^\(python3 -m venv .*pytest.*\)$/\1/p" in script


def test_the_readme_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "readme.py").write_text(code, encoding="utf-8")
    done = script("readme.py", cwd=tmp_path)
    assert done.code == 0, done.err
    # Short enough to be read at once: some twenty lines and those between them.
    assert len([line for line in code.splitlines() if line.strip()]) <= 24
    (said,) = re.findall(r"It prints:\n\n```text\n(.*?)```", README, flags=re.DOTALL)
    number = r"-?\d+\.\d+"
    assert re.sub(number, "x", done.out) == re.sub(number, "x", said)
    # Other processors round otherwise, and two hundred updates make more of it.
    found = np.array(re.findall(number, done.out), float)
    assert found == pytest.approx(np.array(re.findall(number, said), float), abs=0.3)


def test_version_and_help():
    assert re.fullmatch(r"varfilter \d+\.\d+\.\d+\n", succeed("--version").out)
    shown = succeed("--help").out
    assert "varfilter demo" in shown
    assert "varfilter doctor " in shown
    assert "demo" in refuse("dmeo")
