"""Runs that version 0.1.0 made: they load, are filtered with, scored, and go on as they would have.

`version-0.1.0` is a folder that it wrote: five updates on examples/data/sensors.csv.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from varfilter.runs import Run, filter_data, train_run

HERE = Path(__file__).parent
SENSORS = HERE.parents[1] / "examples" / "data" / "sensors.csv"
RESULTS = HERE.parents[1] / "results"
KEPT = sorted(path.parent for path in RESULTS.glob("**/run.json"))


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(HERE / "version-0.1.0", folder)
    record = (folder / "run.json").read_text(encoding="utf-8").replace("@SENSORS@", str(SENSORS))
    (folder / "run.json").write_text(record, encoding="utf-8")
    return Run.load(folder)


def test_an_old_run_filters_with_the_numbers_it_gave(run):
    assert run.medium.name == "table"
    assert run.template.schema.step == 300.0
    # It had no other trajectories, and rows of gaps whether they were asked for or not.
    rows = list(filter_data(run, SENSORS, num_particles=1, fill_gaps=True, alarm_rate=0.0))
    assert len(rows) == 4793
    # What `varfilter filter` of 0.1.0 wrote, on another machine: 32-bit sums in another order.
    assert rows[5]["surprise"] == pytest.approx(8.073841, rel=1e-4)
    assert rows[50]["surprise"] == pytest.approx(7.585886, rel=1e-4)
    assert rows[50]["temperature_mean"] == pytest.approx(46.954517, rel=1e-4)
    total = np.nansum([row["surprise"] for row in rows])
    assert total == pytest.approx(42895.957, rel=1e-4)


def test_an_old_run_goes_on_as_it_would_have(run):
    for _ in train_run(run, run.dataset, max_updates=10):
        pass
    last = run.metrics()[-1]
    assert last["step"] == 10
    # As 0.1.0 had it after the same five updates more, but for the gaps, which it filled with
    # their means and which are drawn now: some steps in a hundred differ by some nats in ten.
    assert last["valid"]["nats"] == pytest.approx(8.785904896, rel=2e-3)
    assert run.trained().step == 10


def without(*path):
    def remove(record):
        for name in path[:-1]:
            record = record[name]
        del record[path[-1]]

    return remove


def setting(value, *path):
    def change(record):
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "damage",
    [
        without("data"),
        without("experiment"),
        without("data", "row_shape"),
        without("data", "families"),
        without("data", "scale"),
        without("experiment", "schedule", "kind"),
        setting(None, "data"),
        setting("x", "data"),
        setting("zz", "data", "offset"),
        setting("zz", "data", "table"),
        setting(None, "experiment", "model"),
        setting(3, "experiment", "filter"),
        setting("zzz", "experiment", "filter", "bound"),
    ],
)
def test_a_damaged_record_is_refused_in_a_sentence(run, damage):
    path = run.folder / "run.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    damage(record)
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=r"damaged|must be one of|update varfilter") as caught:
        Run.load(run.folder)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_run_without_checkpoints_is_not_started_over(run):
    for path in run.checkpoints.iterdir():
        path.unlink()
    best = (run.folder / "best.safetensors").read_bytes()
    with pytest.raises(ValueError, match="no checkpoint to resume from"):
        next(train_run(run, run.dataset))
    assert (run.folder / "best.safetensors").read_bytes() == best


def test_data_that_moved_are_named(run):
    record = (run.folder / "run.json").read_text(encoding="utf-8")
    (run.folder / "run.json").write_text(record.replace(str(SENSORS), "/gone/sensors.csv"))
    with pytest.raises(FileNotFoundError, match="are not where they were") as caught:
        _ = Run.load(run.folder).dataset
    assert "/gone/sensors.csv" in str(caught.value)


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_every_run_of_the_results_loads(folder):
    run = Run.load(folder)
    assert run.medium.name == "music"
    assert run.experiment.data.source in ("jsb", "piano-midi", "musedata", "nottingham")
