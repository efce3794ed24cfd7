"""The pages of docs/: their Python runs, block after block; their commands are ours; they build."""

import functools
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import PROGRAM, command, script

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader stands: the top of a checkout."""
    (tmp_path / "examples").mkdir()
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "examples" / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_python(folder, *pages):
    path = folder / "page.py"
    code = "\n".join(block for page in pages for block in blocks(page, "python"))
    path.write_text(code, encoding="utf-8")
    # A process of its own, as a reader's: without the strict settings of the tests.
    done = script(path)
    assert done.code == 0, done.err
    assert done.out


@pytest.mark.slow
def test_python_of_the_quick_start_and_of_your_own_data_runs(folder):
    # One after the other: the second loads the run of the first.
    run_python(folder, ROOT / "docs" / "index.md", ROOT / "docs" / "data.md")


@pytest.mark.parametrize(
    "names",
    [
        # In one process, which imports and compiles once what they share.
        pytest.param(("model", "inference", "paper"), id="model-inference-paper"),
        pytest.param(("bounds",), id="bounds", marks=pytest.mark.slow),
    ],
)
def test_python_of_pages_runs(names, folder):
    run_python(folder, *(ROOT / "docs" / f"{name}.md" for name in names))


def test_commands_of_the_pages_are_known():
    known = {"list", "train", "evaluate", "filter", "forecast", "sample", "report", "reproduce"}
    known |= {"data", "demo", "doctor", "repair"}
    words = [
        shlex.split(line)
        for page in PAGES
        for language in ("sh", "text")
        for block in blocks(page, language)
        for line in block.splitlines()
    ]
    used = {w[w.index("varfilter") + 1] for w in words if "varfilter" in w}
    assert used <= known
    assert {"train", "filter", "forecast", "report", "reproduce"} <= used


def run_commands(page, run, *, more, only=None):
    """Each command of a page, as it stands there; `more` are options to add, by command."""
    for line in "".join(blocks(page, "sh")).splitlines():
        program, *words = shlex.split(line)
        if program != "varfilter" or (only and words[0] not in only):
            continue
        done = run(*words, *more.get(words[0], ()))
        assert done.code == 0, (line, done.err)


@pytest.mark.usefixtures("as_users_run_it")
def test_quick_start_works(folder):
    # One model in the place of two, a fortieth of the training, and few trajectories: that the
    # fault stands out, and not how well the bands hold.
    few = ["--num-particles", "8"]
    small = ["--max-updates", "40", "--num-members", "1"]
    run_commands(
        ROOT / "docs" / "index.md",
        command,
        more={"train": small, "filter": few, "forecast": few},
        only=("train", "filter", "forecast"),
    )
    check_filtered(folder)


@pytest.mark.slow
def test_quick_start_works_to_the_letter(folder):
    # Optimized, and each command a process, as its readers run it.
    run_commands(
        ROOT / "docs" / "index.md", functools.partial(script, PROGRAM, is_optimized=True), more={}
    )
    check_filtered(folder)
    check_bands(folder)
    assert "<html" in (folder / "runs" / "sensors" / "report.html").read_text(encoding="utf-8")


def check_filtered(folder):
    """The injected fault (run 24 from 02:20 on, of `make_sensors.py`) has the highest surprise."""
    import polars

    rows = polars.read_csv(folder / "filtered.csv")
    top = rows.sort("surprise", descending=True, nulls_last=True).head(3)
    assert set(top["run"].cast(str)) == {"24"}
    assert all("2024-03-12" in str(time) and "02:" in str(time) for time in top["time"])
    ahead = polars.read_csv(folder / "ahead.csv")
    assert len(ahead) == 20 * rows["run"].n_unique()
    assert (ahead["pressure_q05"] <= ahead["pressure_q95"]).all()


def check_bands(folder):
    """Nine in ten of the held-out points lie in the 90% bands, give or take five in a hundred."""
    from dataclasses import replace

    import jax

    from varfilter.data import Ragged
    from varfilter.runs import Run, apply_run
    from varfilter.training.evaluation import forecast_coverage

    run = Run.load(folder / "runs" / "sensors")
    dataset, applied = run.dataset, apply_run(run)
    # Up to the fault: no band is to hold that.
    cut = [
        rows[:52] if name == "24" else rows
        for name, rows in zip(dataset.names["test"], dataset.test, strict=True)
    ]
    clean = replace(dataset, test=Ragged.of(cut))
    found = forecast_coverage(applied.filter, applied.model, clean, jax.random.key(1), horizon=20)
    kinds = dataset.schema.kinds
    numeric = [i for i, name in enumerate(dataset.columns) if kinds[name] == "numeric"]
    share = found.covered[:, numeric].sum() / found.count[:, numeric].sum()
    assert 0.85 <= share <= 0.95


def test_pages_build(tmp_path):
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
