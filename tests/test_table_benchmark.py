"""The benchmark of tables: what it says of made-up lines, tables that travel, and its peers."""

import sys
from pathlib import Path

import numpy as np
import pytest

from varfilter.data.continued import continued
from varfilter.data.tables.read import read_table

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import public_tables
        import table_peers
        import tables

        yield tables, table_peers, public_tables
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def scores(nats, rmse=1.0, within=0.9):
    return {"x": {"nats": nats, "rmse": rmse, "crps": rmse, "within_90": within}}


def line_of(table, nats, *, seed=0, rmse=0.8, within=0.9):
    """A line of ours, whose last value has 1 nat one step ahead and 2 further on."""
    by_predictor = {
        "model": {"1": scores(9.0, 3.0), "5": scores(9.0, 3.0)},
        "pooled": {"1": scores(nats, rmse), "5": scores(nats + 1, rmse, within)},
        "last value": {"1": scores(1.0), "5": scores(2.0)},
    }
    job = {"table": table, "variant": "auto", "seed": seed, "epochs": None}
    return job | {"horizon": 5, "num_rows": 300, "comparison": {"columns": by_predictor}}


def peers_of(table, nats):
    peers = {"ETS": {"columns": {"1": scores(nats), "5": scores(nats)}}}
    job = {"table": table, "variant": "peers", "seed": 0, "epochs": None}
    return job | {"horizon": 5, "peers": peers}


def test_the_report_has_means_over_seeds_and_every_loss(benchmark, capsys):
    tables, _, _ = benchmark
    lines = [line_of("co2", 0.2), line_of("co2", 0.4, seed=1), peers_of("co2", 0.31)]
    lines += [line_of("oil", 1.2), peers_of("oil", 0.1)]
    lines += [line_of("sea", 0.5, rmse=1.1, within=0.5)]
    tables.report(lines)
    out = capsys.readouterr().out
    row = "| co2 | 300 x 1 | 1.000 | - | - | ETS 0.310 (1.00, 1.00)"
    assert row in out
    assert "| 9.000 (3.00, 3.00) | 0.300 (0.80, 0.80) ± 0.100" in out
    losses = "sea (horizon 1), sea (horizon H), oil (horizon 1), oil (horizon H)"
    assert f"Worse than the last value by more than 5%: {losses}." in out
    assert "one step ahead: co2; behind: oil." in out
    assert "outside of 80% to 97%: sea 50.0%." in out


def test_what_is_there_is_not_done_again(benchmark, tmp_path, monkeypatch):
    tables, _, _ = benchmark
    asked = []

    def measured(job, folder, runs):
        asked.append((job.table, job.seed))
        return line_of(job.table, 0.0, seed=job.seed) | {"seconds": 1.0}

    monkeypatch.setattr(tables, "measured", measured)
    for seeds in (["0"], ["0", "1"]):
        words = ["--out", str(tmp_path / "lines"), "--tables", "co2", "oil", "--seeds", *seeds]
        monkeypatch.setattr(sys, "argv", ["tables.py", *words])
        tables.main()
    assert asked == [("co2", 0), ("oil", 0), ("co2", 1), ("oil", 1)]


def test_tables_travel_without_their_packages(benchmark, tmp_path):
    _, _, public = benchmark

    def lost():
        raise ModuleNotFoundError("it comes inside of another package")

    made = {"time": np.array(["2020-01-01"], "datetime64[m]"), "kind": np.array(["rain"])}
    paths = public.prepared(tmp_path, {"made": lambda: made, "lost": lost})
    assert [path.name for path in paths] == ["made.npz"]
    (found,) = public.kept(tmp_path, ["made"]).values()
    assert found["time"] == made["time"]
    assert found["kind"].tolist() == ["rain"]


@pytest.mark.slow
def test_peers_know_a_random_walk(benchmark):
    """Each is fitted, and none is far from the filter that knows this world."""
    pytest.importorskip("statsmodels")
    _, peers, _ = benchmark
    steps = np.random.default_rng(3).normal(size=(3, 400))
    rows = {"walk": 50.0 + np.cumsum(steps[0]) + 0.5 * steps[1], "noise": steps[2]}
    rows["walk"][100:110] = np.nan
    dataset = read_table(rows, fractions=(0.7, 0.1, 0.2))
    (sequence,) = continued(dataset, "test")
    found = peers.peer_scores(dataset, sequence, 5, 2)
    assert {"UnobservedComponents", "ETS", "ARIMA", "VAR", "VAR of changes"} <= set(found)
    # Two of the errors of a root mean square of 80 values.
    assert found["UnobservedComponents"]["columns"]["1"]["walk"]["rmse"] == pytest.approx(
        1.207, rel=0.2
    )
    for name in ("UnobservedComponents", "ETS", "ARIMA"):
        assert 0.8 <= found[name]["columns"]["5"]["noise"]["within_90"] <= 1.0
