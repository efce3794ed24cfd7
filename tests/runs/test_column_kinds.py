"""A table with a column of each kind, from its frame to rows, samples and live lines."""

import csv
import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest

from commands import command, succeed
from kinds_of_columns import KINDS, LEVELS, one_of_each
from tiny_runs import TINY, keep_untrained
from varfilter.data.tables.read import read_table
from varfilter.experiments import TableSizes, own_experiment
from varfilter.media import forecast_rows, source_of
from varfilter.media.frames import frame_like
from varfilter.media.reference import last_value_reference
from varfilter.runs import Run, TableFilter
from varfilter.simulation import Forecast
from varfilter.training.predictive_scores import Predictions, column_scores

NUM_ROWS = 90


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "plant.csv"
    pd.DataFrame(one_of_each(300)).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(path, tmp_path_factory):
    """As it was drawn at random: what it says is of every kind, if not wise."""
    source = replace(source_of(path), kinds=tuple(f"{n}={kind}" for n, kind in KINDS.items()))
    sizes = TableSizes(latent_size=2, hidden_size=4)
    experiment = replace(own_experiment(source), model=sizes, num_members=1, **TINY)
    folder = tmp_path_factory.mktemp("runs") / "plant"
    run = Run.begin(folder, experiment, read_table(path, kinds=KINDS))
    keep_untrained(run)
    return run


@pytest.fixture(scope="module")
def filtered(run):
    frame = pd.DataFrame(one_of_each(NUM_ROWS, seed=2))
    frame["state"] = frame["state"].astype("category")
    frame.loc[5:7, "state"] = None
    frame.loc[9, list(KINDS)] = None
    fitted = TableFilter.load(run.folder)
    return frame, fitted.filter(frame, levels=(0.05, 0.95), num_particles=4, num_samples=16)


def test_filtered_rows_say_of_each_column_what_its_kind_can(filtered):
    frame, rows = filtered
    seen = rows["state"].tolist()
    assert seen[:5] == frame["state"].tolist()[:5]
    assert all(pd.isna(value) for value in seen[5:8])
    later = rows[1:]
    each = later[[f"state_p_{level}" for level in LEVELS]].to_numpy()
    np.testing.assert_allclose(each.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(later["state_p"], each.max(axis=1))
    assert later["state_level"].tolist() == [LEVELS[i] for i in each.argmax(axis=1)]
    assert np.isfinite(later["surprise"]).all()
    assert later["surprise"].iloc[8] == 0.0  # of nothing, there is no surprise
    # That of a level by itself is minus the log of how probable it was.
    own = [each[t, LEVELS.index(name)] for t, name in enumerate(seen[1:]) if not pd.isna(name)]
    known = later["state_surprise"].notna()
    assert known.tolist() == [not pd.isna(name) for name in seen[1:]]
    np.testing.assert_allclose(later["state_surprise"][known], -np.log(own), rtol=0.02, atol=0.02)
    assert (later["rain_q05"] >= 0).all()
    assert (later["share_q95"] <= 1.0 + 1e-6).all()
    assert (later["faults_mean"] > 0).all()
    np.testing.assert_allclose(later["faults_q05"], np.round(later["faults_q05"]), atol=0.2)


def test_forecasts_name_levels_and_polars_gets_its_own_back(run):
    """As any forecast has them: draws of each element, their means and quantiles."""
    chances = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], np.float32)
    mean = np.concatenate([np.zeros((2, 7), np.float32), chances], axis=1)
    mean = jnp.asarray(mean)
    ahead = Forecast(mean[None], mean, mean[None], (0.5,))
    rows = frame_like(pl.DataFrame(), forecast_rows(run.template, ahead), run.template.schema)
    assert rows["state_level"].to_list() == ["down", "busy"]
    np.testing.assert_array_equal(rows["state_p"], np.float32([0.5, 0.6]))
    np.testing.assert_array_equal(rows[[f"state_p_{level}" for level in LEVELS]], chances)
    assert not any("=" in name for name in rows.columns)
    assert rows["rain_q50"].to_list() == [0.0, 0.0]
    levels = [{"state": "idle"}, {"state": None}]
    missing = frame_like(pl.DataFrame(), levels, run.template.schema)
    assert missing["state"].to_list() == ["idle", None]


@pytest.mark.slow
def test_a_forecast_of_every_kind(run, filtered):
    frame, _ = filtered
    ahead = TableFilter.load(run.folder).forecast(
        3, pl.from_pandas(frame), num_particles=4, num_samples=17
    )
    assert set(ahead["state_level"]) <= set(LEVELS)
    assert (ahead["rain_q05"] == 0.0).all()
    assert (ahead["share_q95"] <= 1.0 + 1e-6).all()


def test_commands(run, path, tmp_path):
    """Samples have levels, and a picture of fit is written."""
    succeed("sample", run.folder, "--num-steps", 40, "--out", tmp_path / "made.csv")
    with open(tmp_path / "made.csv") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["time", *KINDS]
    assert {row["state"] for row in rows} <= set(LEVELS)
    assert min(float(row["rain"]) for row in rows) == 0.0
    assert all(row["faults"].isdigit() for row in rows)
    # What was made up can be learned from: it is read as the run's own data are.
    assert len(run.template.schema.read(tmp_path / "made.csv").rows[0]) == 40
    report = json.loads(succeed("data", "check", path, "--json", "--out", tmp_path / "f.png").out)
    assert report["columns"]["rain"]["kind"] == "zeros"
    assert "are 0, and none is below" in report["columns"]["rain"]["why"]
    assert (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_live_lines_with_an_unknown_level(run):
    table = one_of_each(4, seed=5)
    told = [{name: table[name][t] for name in KINDS} for t in range(4)]
    told[2]["state"] = "burnt"
    # Of a line that is left out nothing is told but why.
    bad = told[3] | {"state": "frozen", "rain": "much"}
    told.insert(3, bad)
    lines = "".join(json.dumps(line) + "\n" for line in told)
    result = command("filter", run.folder, "-", "--num-particles", 4, stdin=lines)
    assert result.code == 2
    live = [json.loads(line) for line in result.out.splitlines()]
    # Rows have what came, though nothing was taken from it.
    assert [row["state"] for row in live] == [*table["state"][:2], "burnt", table["state"][3]]
    assert "Line 3" in result.err
    assert "in column `rain`, where a number or null must be" in result.err
    assert "frozen" not in result.err
    assert "'burnt', no level of the training rows: taken as missing" in result.err


def test_the_naive_reference_knows_every_kind(path):
    """By hand, of the columns that have one of their own."""
    made = read_table(path, columns=["state", "rain"], kinds={"state": "categorical"})
    last, xs = made.valid.values[:-1], made.valid.values[1:]
    train = made.train.values
    stays = [(np.mean(train[1:, i] == train[:-1, i]) * (len(train) - 1) + 1) for i in range(3)]
    stays = np.array(stays) / (len(train) + 1)
    shares = np.where(last[:, :3] > 0.5, stays, 1.0 - stays)
    of_state = -np.log(np.sum(shares * xs[:, :3], axis=1) / shares.sum(axis=1))
    rain, scaled = train[:, 3], xs[:, 3] / made.scaling.scale[3]
    logs = np.log(rain[1:][rain[1:] > 0] / made.scaling.scale[3])
    before, now = rain[:-1] > 0, rain[1:] > 0
    after_more, after_zero = (
        (np.sum(is_after & now) + 1) / (np.sum(is_after) + 2) for is_after in (before, ~before)
    )
    above = np.where(last[:, 3] > 0, after_more, after_zero)
    wet = np.where(scaled > 0, scaled, 1.0)
    z = (np.log(wet) - logs.mean()) / logs.std()
    density = -0.5 * z**2 - np.log(logs.std() * np.sqrt(2 * np.pi) * wet)
    of_rain = -np.where(scaled > 0, np.log(above) + density, np.log(1 - above))
    found = last_value_reference(made, "valid").nats
    assert found == pytest.approx(np.mean(of_state + of_rain), rel=1e-4)
    alone = last_value_reference(read_table(path, columns=["rain"]), "valid").nats
    assert alone == pytest.approx(np.mean(of_rain), rel=1e-4)


def test_a_column_of_levels_has_one_score_however_a_predictor_takes_its_levels(run):
    """-log p of the level that came: as it is, and of chances that do not add up to one."""
    dataset = run.template
    places = [i for i, family in enumerate(dataset.families) if family.group == "state"]
    xs = np.full((2, len(dataset.families)), np.nan)
    xs[:, places] = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    chances = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.1]])
    mean, nats = np.full_like(xs, np.nan), np.full_like(xs, np.nan)
    mean[:, places] = chances
    nats[:, places] = -np.log(np.where(xs[:, places] > 0.5, chances, 1.0 - chances))
    quantiles = np.full((4, *xs.shape), np.nan)
    found = column_scores(dataset, Predictions(xs, mean, nats, np.full_like(xs, np.nan), quantiles))
    assert list(found) == ["state"]
    assert found["state"]["nats"] == pytest.approx(-np.log(0.5 * 0.1 / 0.5) / 2)
    squares = np.sum((chances - xs[:, places]) ** 2, axis=1) / 2
    assert found["state"]["crps"] == pytest.approx(squares.mean())
