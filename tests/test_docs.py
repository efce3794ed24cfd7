"""The pages of docs/: their Python runs, block after block, and so do their commands."""

import functools
import re
import shlex

import pytest

from commands import PROGRAM, command, script
from pages import (
    DOCS,
    PAGES,
    ROOT,
    blocks,
    commands_in_prose,
    commands_of,
    python_of,
    run_commands,
    stand_in_a_checkout,
)
from varfilter import cli

README = ROOT / "README.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader stands: the top of a checkout."""
    stand_in_a_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_python(folder, *pages):
    path = folder / "page.py"
    path.write_text(python_of(*pages), encoding="utf-8")
    # A process of its own, as a reader's: without the strict settings of the tests.
    done = script(path)
    assert done.code == 0, done.err
    assert done.out


@pytest.mark.slow
def test_python_of_the_quick_start_and_of_your_own_data_runs(folder):
    # One after the other: the second loads the run of the first.
    run_python(folder, DOCS / "quickstart.md", DOCS / "data.md")


@pytest.mark.parametrize(
    "names",
    [
        # In one process, which imports and compiles once what they share.
        pytest.param(("model", "inference", "paper", "how", "models"), id="all-but-bounds"),
        pytest.param(("bounds",), id="bounds", marks=pytest.mark.slow),
    ],
)
def test_python_of_pages_runs(names, folder):
    run_python(folder, *(DOCS / f"{name}.md" for name in names))


def test_python_of_every_page_is_run_by_a_test():
    by_page = {"quickstart", "data", "model", "inference", "paper", "how", "models", "bounds"}
    tutorials = {"tables", "music", "your-own-model", "streams"}  # of `test_tutorials.py`
    assert {page.stem for page in PAGES if blocks(page, "python")} == by_page | tutorials


@pytest.mark.usefixtures("as_users_run_it")
def test_commands_of_all_pages_have_options_that_exist(folder, monkeypatch):
    """Each is parsed as it is typed, up to where the work would begin."""
    parsed = []
    for reference, _ in cli.COMMANDS.values():
        monkeypatch.setattr(
            cli._imported(reference), "__call__", lambda self, *_: parsed.append(self) or 0
        )
    monkeypatch.setattr("varfilter.cli.train._train", lambda target, *_: parsed.append(target) or 0)
    make_what_is_named(folder)
    lines = [
        (page, words)
        for page in (*PAGES, README)
        for words in commands_of(page, "sh", "text") + commands_in_prose(page)
    ]
    for page, words in lines:
        if words[0] == "reproduce" or "<" in words:
            continue
        done = command(*words)
        # A sentence may leave out what is required; a block is there to be pasted.
        is_short = words in commands_in_prose(page) and done.err.startswith("Missing from")
        assert not done.err or is_short, (page.name, words, done.err)
    assert len(parsed) > 80


def make_what_is_named(folder):
    """Files that `train` looks at before its options: what is in them, it reads later."""
    (folder / "runs").mkdir()
    for name in ("readings", "prices", "plant", "heater"):
        (folder / f"{name}.csv").write_text("a,b\n1,2\n")
    for name in ("songs/a.mid", "recordings/a.wav", "videos/a.avi"):
        (folder / name).parent.mkdir()
        (folder / name).write_bytes(b"")
    clips = [("video/weizmann", "avi"), ("walkers", "gif")]
    for name, ending in [("speech/timit_sample", "flac"), *clips]:
        (folder / name).mkdir(parents=True)
        (folder / name / f"a.{ending}").write_bytes(b"")


@pytest.mark.usefixtures("as_users_run_it")
def test_quick_start_works(folder):
    # One model in the place of two, a fortieth of the training, and few trajectories, without what
    # would be calibrated for so few: that the fault stands out, and not how well the bands hold.
    few = ["--num-particles", "8"]
    small = ["--max-updates", "40", "--num-members", "1"]
    run_commands(
        DOCS / "quickstart.md",
        command,
        more={
            "train": small,
            "filter": [*few, "--alarm-rate", "0"],
            "forecast": [*few, "--no-pool"],
        },
        only=("train", "filter", "forecast"),
    )
    check_filtered(folder)
    check_messages(folder)


@pytest.mark.slow
def test_quick_start_works_to_the_letter(folder):
    # Optimized, and each command a process, as its readers run it.
    run_commands(DOCS / "quickstart.md", functools.partial(script, PROGRAM, is_optimized=True))
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


def check_messages(folder):
    """What troubleshooting quotes is what the commands say, to the letter but for line ends."""
    (folder / "songs").mkdir()
    (folder / "songs" / "notes.txt").write_text("no music")
    (folder / "few.csv").write_text("run,time,temperature\n1,2024-03-04 06:00,45\n")
    nowhere = {"VARFILTER_DATA": str(folder / "nowhere")}
    quoted = blocks(DOCS / "troubleshooting.md", "console")
    for block in quoted:
        line, _, message = block.partition("\n")
        done = command(*shlex.split(line.removeprefix("$ varfilter ")), env=nowhere)
        assert done.code == 2, (line, done)
        assert words_of(message) in words_of(done.err), (line, done.err)
    assert len(quoted) > 8


def words_of(text):
    return " ".join(text.split())


def test_errors_that_troubleshooting_quotes_from_python():
    quoted = blocks(DOCS / "troubleshooting.md", "pycon")
    for block in quoted:
        *lines, message = block.strip().splitlines()
        *before, last = [line.removeprefix(">>> ") for line in lines]
        names = {}
        exec("\n".join(before), names)
        with pytest.raises(TypeError, match=re.escape(message)):
            exec(last, names)
    assert len(quoted) == 2


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
