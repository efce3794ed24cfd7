"""The benchmark of the loaders: what it counts and reports, not how fast it was."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from real_data import DATA, ROOT
from varfilter.data import Dataset, Family, Ragged
from varfilter.distributions import Normal


def numbered(lengths):
    """Every row holds its number; the same sequences in each split."""
    ragged = Ragged(np.arange(sum(lengths), dtype=np.int32), lengths)
    return Dataset("numbers", ragged, ragged, ragged, Family(Normal))


@pytest.mark.slow
def test_the_benchmark_times_every_loader(tmp_path):
    """What it reports, not how fast it was."""
    path = tmp_path / "data.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "data.py"), "--quick", "--json", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())
    found = {(row["set"], row["loader"]): row["shape"] for row in rows}
    expected = {("table", "windows on the device"): "32x50x8"}
    if DATA.is_dir():
        shapes = {"jsb_chorales": "16x25x88", "nottingham": "16x25x88"}
        expected |= {(name, "windows on the device"): shape for name, shape in shapes.items()}
        shapes = {"timit-sample": "64x40x200", "weizmann": "20x21x1x64x64"}
        workers = ("1 worker", "2 workers", "4 workers", "2, cold")
        loaders = ["windows on the device", "fixed windows", *(f"mapped, {n}" for n in workers)]
        expected |= {(name, loader): shapes[name] for name in shapes for loader in loaders}
    assert found.items() >= expected.items()
    for row in rows:
        assert row["batches_per_second"] == pytest.approx(1e3 / row["batch_ms"])
        assert row["ratio"] == pytest.approx(row["update_ms"] / row["batch_ms"])
        assert row["ratio"] > 0
        assert f"{row['set']}: an update of DeepMarkov" in done.stdout


@pytest.fixture
def benchmark(monkeypatch):
    """`benchmarks/data.py` as a module."""
    place = ROOT / "benchmarks" / "data.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_data", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmark_of_data", module)
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_leaves_absent_sets_out(request, monkeypatch, capsys, tmp_path):
    # It asks for the folder when it is imported.
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    benchmark = request.getfixturevalue("benchmark")
    monkeypatch.setattr(sys, "argv", ["data.py", "--quick", "jsb_chorales", "weizmann"])
    benchmark.main()
    out = capsys.readouterr().out
    for name in ("jsb_chorales", "weizmann"):
        assert f"{name} is left out: " in out
    assert str(tmp_path) in out


def test_the_benchmark_counts_no_batch_twice(benchmark, monkeypatch):
    """A loader that has two batches makes them again and again; none is kept and replayed."""
    made = []
    for name in ("consecutive_windows", "whole_sequences"):
        loader = getattr(benchmark, name)

        def counted(*arguments, loader=loader, name=name):
            for item in loader(*arguments):
                made.append(name)
                yield item

        monkeypatch.setattr(benchmark, name, counted)
    subject = benchmark.Subject(None, 4, 2, None)
    rows = {
        row["loader"]: row for row in benchmark.loaders(numbered([9] * 2), subject, quick=False)
    }
    assert set(rows) == {"windows on the device", "fixed windows", "whole sequences"}
    # A round to compile and five that count, each of all its batches.
    assert rows["fixed windows"]["num_batches"] == 50
    assert made.count("consecutive_windows") == made.count("whole_sequences") == 300


def test_the_benchmark_forgets_the_file_when_nobody_maps_it(benchmark, monkeypatch, tmp_path):
    def maps():
        try:
            return Path("/proc/self/maps").read_text().count("values.npy")
        except OSError:
            pytest.skip("needs /proc")

    found = []
    monkeypatch.setattr(benchmark, "forget", lambda path: found.append(maps()))
    subject = benchmark.Subject(None, 4, 2, None, is_mapped=True)
    rows = list(benchmark.loaders(numbered([9] * 5), subject, quick=True))
    (cold,) = (row for row in rows if row["loader"] == "mapped, 2, cold")
    assert cold["num_batches"] == 3  # an epoch
    assert found == [0] * 6


def test_the_benchmark_fails_if_a_loader_is_slow(benchmark, monkeypatch, capsys):
    row = {"loader": "fixed windows", "shape": "1x1", "batches_per_second": 1.0, "batch_ms": 1e3}
    monkeypatch.setattr(benchmark, "loaders", lambda *_, **__: iter([row]))
    monkeypatch.setattr(sys, "argv", ["data.py", "table"])

    def with_update(milliseconds):
        timed = {"model": "DeepMarkov", "update_ms": milliseconds, "update_batch": 1}
        monkeypatch.setattr(benchmark, "update", lambda *_, **__: timed)
        benchmark.main()

    with_update(2e3)
    with pytest.raises(SystemExit, match="Slower than the update: table, fixed windows"):
        with_update(5e2)
    assert "update/batch" in capsys.readouterr().out
