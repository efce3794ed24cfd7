"""A run on a monthly table: from a file, a frame and lines its rows come back as they went in."""

import csv
import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from commands import succeed
from tiny_runs import TINY, keep_untrained
from varfilter.experiments import TableSizes, own_experiment
from varfilter.media import load
from varfilter.media.table import TableSource
from varfilter.runs import Run, TableFilter

OPTIONS = {"num_samples": 8, "num_particles": 4}
WORDS = ("--num-samples", 8, "--num-particles", 4)


@pytest.fixture(scope="module")
def monthly():
    """Month ends without a name, of which one is lost, and the last come first."""
    index = pd.date_range("2008-01-31", periods=60, freq="ME")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sales": np.round(rng.normal(10.0, 2.0, 60), 3)}, index=index)
    frame = frame.drop(index[50])
    return pd.concat([frame.iloc[40:], frame.iloc[:40]])


@pytest.fixture(scope="module")
def folder(monthly, tmp_path_factory):
    path = tmp_path_factory.mktemp("monthly")
    monthly.to_csv(path / "monthly.csv")
    source = TableSource(str(path / "monthly.csv"), calendar=("none",))
    sizes = TableSizes(latent_size=2, hidden_size=4)
    experiment = dataclasses.replace(own_experiment(source), model=sizes, num_members=1, **TINY)
    run = Run.begin(path / "run", experiment, load(source))
    keep_untrained(run)
    return path


def test_a_monthly_table_comes_back_as_it_went_in(folder, monthly, tmp_path):
    out = tmp_path / "filtered.csv"
    succeed("filter", folder / "run", folder / "monthly.csv", *WORDS, "--out", out)
    with open(out, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["time"] for row in rows] == [f"{day:%Y-%m-%d}" for day in monthly.index]
    assert [float(row["sales"]) for row in rows] == monthly["sales"].tolist()
    # The first month stands in row 19, and is given.
    assert [i for i, row in enumerate(rows) if row["surprise"] == ""] == [19]

    # A frame has its index again, and the same numbers.
    run = TableFilter.load(folder / "run")
    found = run.filter(monthly, **OPTIONS)
    pd.testing.assert_index_equal(found.index, monthly.index)
    surprise = [float(row["surprise"] or "nan") for row in rows]
    np.testing.assert_allclose(found["surprise"], surprise, rtol=1e-5)
    filled = run.filter(monthly, fill_gaps=True, **OPTIONS)
    every = pd.date_range("2008-01-31", periods=60, freq="ME")
    assert list(filled.index) == list(every)
    assert filled["sales"].isna().to_numpy().nonzero()[0].tolist() == [50]

    # Forecasts go on at the end of each month.
    ahead = run.forecast(3, monthly, **OPTIONS)
    assert [f"{day:%Y-%m-%d}" for day in ahead.index] == ["2013-01-31", "2013-02-28", "2013-03-31"]
    words = ("forecast", folder / "run", folder / "monthly.csv", "--horizon", 3, *WORDS)
    lines = [json.loads(line) for line in succeed(*words).out.splitlines()]
    assert [line["time"] for line in lines] == ["2013-01-31", "2013-02-28", "2013-03-31"]


@pytest.mark.slow  # the step of a stream is compiled; how lines lie on months, test_calendar.py has
def test_lines_of_months(folder, monthly):
    first = monthly.sort_index().iloc[:4].drop(monthly.sort_index().index[2])
    told = "\n".join(
        json.dumps({"time": f"{day:%Y-%m-%d}", "sales": sales})
        for day, sales in first["sales"].items()
    )
    for options, days in (
        ((), ["2008-01-31", "2008-02-29", "2008-04-30"]),
        (("--fill-gaps",), ["2008-01-31", "2008-02-29", "2008-03-31", "2008-04-30"]),
    ):
        out = succeed("filter", folder / "run", "-", *WORDS, *options, stdin=told).out
        assert [json.loads(line)["time"] for line in out.splitlines()] == days


def test_a_run_goes_on_with_the_calendar_it_began_with(folder):
    run = Run.load(folder / "run")
    assert run.template.schema.calendar.word == "month"
    assert run.dataset.sha256() == run.record["data"]["sha256"]
    assert TableFilter.load(folder / "run").step == "month"
