"""Runs that version 0.1.0 made: they load, are filtered with, scored, and go on as they would have.

`version-0.1.0` is a folder that it wrote: five updates on examples/data/sensors.csv.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from varfilter.runs import Run, filter_data, train_run

HERE = Path(__file__).parent
SENSORS = HERE.parents[1] / "examples" / "data" / "sensors.csv"
RESULTS = sorted(path.parent for path in (HERE.parents[1] / "results").glob("*/run.json"))


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
    rows = list(filter_data(run, SENSORS))
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
    # As 0.1.0 had it after the same five updates more.
    assert last["valid"]["nats"] == pytest.approx(8.785904896, rel=1e-4)
    assert run.trained().step == 10


@pytest.mark.parametrize("folder", RESULTS, ids=lambda folder: folder.name)
def test_every_run_of_the_results_loads(folder):
    run = Run.load(folder)
    assert run.medium.name == "music"
    assert run.experiment.data.source in ("jsb", "nottingham")
