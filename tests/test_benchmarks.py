"""The scripts of `benchmarks/`, run tiny in a subprocess: what they report, not how fast."""

import json
import os
import subprocess
import sys
from math import inf, isfinite
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "benchmarks" / "core.py"
SECTIONS = ("steps", "growth", "streaming")


def run_script(*arguments, **variables):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmarks") / "core.json"
    done = run_script("--quick", "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout


@pytest.mark.slow
def test_every_figure_is_a_positive_number(report):
    results, _ = report
    tables = [rows for name in SECTIONS for rows in results[name].values()]
    assert len(tables) == 5
    # These may be zero or negative: gains and (at tiny sizes) the fitted growth.
    signed = {"array_bytes_gained", "resident_mb_gained", "exponent"}
    for row in (row for rows in tables for row in rows):
        for name, value in row.items():
            if name in signed:
                assert isfinite(value), row
            elif name != "filter":
                assert 0 < value < inf, row


@pytest.mark.slow
def test_every_filter_is_measured(report):
    results, printed = report
    small = {row["filter"] for row in results["steps"]["small"]}
    assert small == {
        "Prior", "Amortized", "Recurrent", "Iterative K=1, gradients", "Iterative K=1, errors",
        "GradientDescent K=20", "ParticleFilter(Prior, 100)", "Exact", "KalmanFilter",
    }  # fmt: skip
    music = {row["filter"] for row in results["steps"]["music"]}
    assert music == {"Prior", "Iterative K=1, gradients"}
    pushes = [row["filter"] for row in results["streaming"]["pushes"]]
    assert pushes == ["filterpy", "cuthbert", "Stream(KalmanFilter)", "Stream(Iterative)"]
    for name in small | set(pushes):
        assert name in printed


@pytest.mark.slow
def test_a_stream_gains_no_arrays(report):
    rows = report[0]["growth"]["stream"]
    assert [row["array_bytes_gained"] for row in rows] == [0, 0]


@pytest.mark.slow
def test_run_is_timed_at_growing_lengths(report):
    rows = report[0]["growth"]["run"]
    for name in ("KalmanFilter", "Iterative"):
        own = [row for row in rows if row["filter"] == name]
        lengths = [row["num_steps"] for row in own]
        assert lengths == [4, 16]
        for row in own:
            assert row["step_us"] == pytest.approx(1e3 * row["run_ms"] / row["num_steps"])


def test_a_missing_peer_is_named_with_the_line_that_installs_it(tmp_path):
    (tmp_path / "filterpy.py").write_text("raise ImportError('not here')")
    done = run_script("--quick", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "filterpy" in done.stderr
    assert "pip install 'varfilter[benchmark]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_presets_make_an_update(tmp_path):
    script, path = ROOT / "benchmarks" / "models.py", tmp_path / "models.json"
    presets = ["srnn-music", "svg-kth"]
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--json", str(path), *presets],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())
    assert [row["preset"] for row in rows] == presets
    assert all(0 < row["peak_gib"] < 12 for row in rows)
    assert all(isfinite(row["avf_free_energy"] + row["baseline_free_energy"]) for row in rows)


@pytest.mark.slow
def test_applied_runs_are_timed(tmp_path):
    script, path = ROOT / "benchmarks" / "applied_cost.py", tmp_path / "applied.json"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--json", str(path), "table", "sound"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())
    assert [(row["subject"], row["num_particles"]) for row in rows] == [
        ("table", 1), ("table", 8), ("sound", 1), ("sound", 8),
    ]  # fmt: skip
    for row in rows:
        assert 0 < row["step_ms"] < inf
        assert (row["line_ms"] is not None) == (row["subject"] == "table")
        assert row["num_particles"] > 1 or row["times_one"] == 1.0


@pytest.mark.slow
def test_the_time_from_a_table_to_its_report(tmp_path):
    words = [ROOT / "benchmarks" / "table_time.py", "--rows", 300, "--columns", 2, "--parts"]
    words += ["--train-options", "--max-updates 2", "--starts", "warm", "--json", tmp_path / "t"]
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "t").read_text().splitlines()]
    assert [line["command"] for line in found] == ["train", "report"]
    assert all(line["processor_seconds"] > 0 for line in found)
    assert "linear model learned" in done.stdout


@pytest.fixture(scope="module")
def sensors(tmp_path_factory):
    """The quick start's run, trained in full."""
    table = ROOT / "examples" / "data" / "sensors.csv"
    run = tmp_path_factory.mktemp("sensors") / "run"
    words = ["-m", "varfilter", "train", table, "--out", run, "--quiet"]
    trained = subprocess.run([sys.executable, *map(str, words)], capture_output=True, check=False)
    assert trained.returncode == 0, trained.stderr
    return run


@pytest.mark.slow
def test_alarms_of_the_sensors_come_at_the_rate_asked_for_and_find_faults(sensors, tmp_path):
    path = tmp_path / "alarms.json"
    words = [ROOT / "benchmarks" / "alarms.py", sensors, "--healthy", 100, "--faulty", 12]
    done = subprocess.run(
        [sys.executable, *map(str, words), "--json", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    # Of 7,700 steps: at 0.001 there are eight alarms. Six validated sequences say the rate to a
    # factor of 2 in four cases of five at 0.01, and in fewer beyond.
    for rate in ("0.05", "0.01", "0.003"):
        assert 1 / 3 < found["rates"][rate] / float(rate) < 3.0, found["rates"]
    ours = found["compared"]["0.01"].pop("varfilter")
    assert ours["spike"]["recall"] > 0.7
    assert ours["swapped"]["recall"] == 1.0
    for theirs in found["compared"]["0.01"].values():
        for kind, each in theirs.items():
            assert each["recall"] <= ours[kind]["recall"]
    assert found["named"]["spike"]["share"] > 0.8


@pytest.mark.slow
def test_bands_of_the_sensors_hold_in_gaps(sensors, tmp_path):
    """What the head of `gaps.py` measures.

    `tests/filters/test_missing_feedback.py` has the same of a model whose truth is known.
    """
    path = tmp_path / "gaps.json"
    words = [ROOT / "benchmarks" / "gaps.py", sensors, "--without", "24", "--json", path]
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    by_count = json.loads(path.read_text())
    one, many = by_count["1"], by_count["256"]
    assert many["num_gaps"] == 99
    for column, (inside, error) in many["inside"].items():
        # Of 99 gaps that overlap; the standard error over sequences is some 0.03.
        assert 0.85 <= inside <= 0.97, (column, inside, error)
        assert one["inside"][column][0] < inside
        # A wider prior is for what is not seen: the bands of whole runs keep to the same limits.
        assert 0.85 <= many["whole"][column][0] <= 0.97, (column, many["whole"][column])
    # A run of one member, whose prior was as it was learned, had 1.715.
    assert many["mean_surprise"] < 1.715
    assert many["cost"][0] < 4.0
    assert many["surprise_after"] - many["surprise_without"] < 4.0


@pytest.mark.slow
def test_experiments_are_timed(tmp_path):
    script, path = ROOT / "benchmarks" / "experiments.py", tmp_path / "experiments.json"
    done = subprocess.run(
        [sys.executable, str(script), "srnn-jsb-baseline", "--batch", "2", "--json", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(path.read_text())
    assert row["batch"] == 2
    assert 0 < row["seconds"] < row["first_seconds"]


@pytest.mark.slow
def test_streams_that_go_on_are_weighed(tmp_path):
    script, path = ROOT / "benchmarks" / "endless.py", tmp_path / "endless.json"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--json", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())["rows"]
    assert [row["pushes"] for row in rows] == 3 * list(range(50, 501, 50))
    assert all(row["push_us"] > 0 and row["array_bytes_gained"] == 0 for row in rows)


SPEED = ROOT / "benchmarks" / "speed.py"


@pytest.mark.slow
def test_updates_streams_and_growth_are_timed(tmp_path):
    path = tmp_path / "speed.json"
    words = ["--quick", "--only", "update", "tape", "evaluation", "stream", "growth"]
    words += ["--preset", "music-one", "music-seeds", "music-baseline", "--json", path]
    done = subprocess.run(
        [sys.executable, *map(str, (SPEED, *words))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(path.read_text())["rows"]
    # A line for each row, printed as it was known.
    assert len(done.stdout.splitlines()) == len(rows)
    updates = {row["preset"]: row for row in rows if row["kind"] == "update"}
    assert list(updates) == ["music-one", "music-seeds", "music-baseline"]
    for row in updates.values():
        assert 0 < row["compile_s"] < row["first_update_s"] < inf
        assert 0 < row["peak_gib"] < inf
    for row in rows:
        for name in ("ms_per_step", "seconds", "us"):
            if name in row:
                assert 0 < row[name]["low"] <= row[name]["median"] <= row[name]["high"] < inf
    phases = [(row["preset"], row["phase"]) for row in rows if row["kind"] == "phase"]
    assert phases == [
        *[("music-one", part) for part in ("filtering", "theta", "phi", "optimizer")],
        *[("music-baseline", part) for part in ("filtering", "gradient", "optimizer")],
    ]
    streams = [(row["subject"], row["streams"]) for row in rows if row["kind"] == "streams"]
    assert streams == [(name, n) for name in ("sensors", "music") for n in (1, 32, 1024)]
    assert all(row["p50_us"] <= row["p99_us"] for row in rows if row["kind"] == "push")
    grown = {(row["what"], row["axis"]) for row in rows if row["kind"] == "growth"}
    assert grown == {("update", "T"), *(("filtering", axis) for axis in "TBKSN")}
    table = subprocess.run(
        [sys.executable, str(SPEED), "--table", str(path)], capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    median = f"{updates['music-one']['ms_per_step']['median']:.3g}"
    assert f"| 0.134 | 0.07 | 0.04 | {median} (" in table


def test_no_new_measurement_begins_when_the_time_is_over(tmp_path):
    path = tmp_path / "speed.json"
    done = subprocess.run(
        [sys.executable, str(SPEED), "--quick", "--minutes", "0", "--json", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "update:music-one and what follows is left out" in done.stdout
    assert not path.exists()


def test_a_ratio_is_of_one_run(tmp_path):
    def row(kind, milliseconds, **others):
        spread = {"low": milliseconds, "median": milliseconds, "high": milliseconds}
        return {"kind": kind, "preset": "timit-one", "ms_per_step": spread, **others}

    update = {"first_update_s": 3.0}
    torch = {"way": "loop", "mode": "eager", "torch": "2", "apart": 1e-7}
    reports = [
        [row("update", 2.0, **update), row("torch", 8.0, **torch)],
        [row("update", 1.0, **update)],
    ]
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, rows in zip(paths, reports, strict=True):
        path.write_text(json.dumps({"quick": False, "rows": rows}))
    table = subprocess.run(
        [sys.executable, str(SPEED), "--table", *map(str, paths)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    # The later update is the figure, and PyTorch is held against the one beside it.
    assert "| 0.27 | 0.12 | 0.06 | 1 (1 to 1) |" in table
    assert "|  / 4.0x |" in table


def test_results_have_the_table_of_the_script():
    """The lines of `RESULTS.md` begin as those that `--table` prints, whatever was measured."""
    empty = ROOT / "benchmarks" / "speed_table.py"
    words = "import runpy, sys; print(runpy.run_path(sys.argv[1])['markdown']([]))"
    table = subprocess.run(
        [sys.executable, "-c", words, str(empty)], capture_output=True, text=True, check=True
    ).stdout
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    for line in table.splitlines():
        assert line.removesuffix("|").rstrip() in results, line


@pytest.mark.slow
def test_the_classic_filters_agree_with_their_peers(tmp_path):
    """The script compares the numbers before it times anything."""
    pytest.importorskip("dynamax")
    pytest.importorskip("particles")
    script, path = ROOT / "benchmarks" / "classic.py", tmp_path / "classic.json"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--json", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    sections = ("kalman", "fit", "particles", "streams")
    rows = [row for name in sections for row in found[name]]
    assert [len(found[name]) for name in sections] == [4, 1, 3, 6]
    for row in rows[:-1]:
        assert 0 < row["ratio"] < inf, row
    assert rows[-1]["streams_a_second"] > 0
    assert [row["kept"] for row in found["memory"]] == ["bound", "mean"]
    assert all(0 < row["peak_gib"] < 2 for row in found["memory"])


def test_a_journey_that_takes_too_long_or_leaves_nothing_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import journeys

    for name in ("0.gif", "1.gif"):
        (tmp_path / name).write_bytes(b"GIF89a")
    given, seconds = [], 1.0

    def timed(words, compiled, profile):
        given.append(words)
        if "--out" in words and words[0] != "train":
            Path(words[words.index("--out") + 1]).write_text("something")
        return {"command": words[0], "seconds": seconds, "processor_seconds": 1.0, "out": ""}

    monkeypatch.setattr(journeys, "timed", timed)
    monkeypatch.setattr(sys, "argv", ["journeys.py", str(tmp_path)])
    journeys.main()
    # Of videos the means are worth a look, and of the new one there is one future, too.
    made = [words for words in given if words[0] == "sample"]
    assert all("--mean" in words for words in made)
    assert [words[words.index("--start") + 1] for words in made if "--start" in words] == [
        str(tmp_path / "0.gif")
    ]
    seconds = 200.0  # of each command
    with pytest.raises(SystemExit, match="s are more than 15 minutes"):
        journeys.main()
    assert journeys.faults_of("x", 1.0, [tmp_path / "none.gif"]) == [
        "x: none.gif was to be written, and is not there."
    ]
