"""A table with a column known beforehand, from the command line to a forecast that asks if."""

import csv
import io
import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from commands import refuse, succeed
from varfilter.data import RandomWindows
from varfilter.experiments import AVF, Adam, FilterChoice, Optimizers, Schedule, TableSizes
from varfilter.experiments.paper import own_experiment
from varfilter.media import Inspection
from varfilter.report.inspection import inspect_sequences
from varfilter.runs import Run, TableFilter, filter_data, forecast_data, sample_run
from varfilter.training import forecast_coverage
from varfilter.training.evaluation import evaluate

NUM_ROWS = 600
HOUR = np.timedelta64(1, "h")


def heater():
    """heat_t = 0.8 heat_t-1 + valve_t + noise: a valve that is known, and what it does."""
    rng = np.random.default_rng(0)
    valve = np.repeat(rng.integers(0, 3, NUM_ROWS // 6), 6).astype(float)
    heat = np.zeros(NUM_ROWS)
    for t in range(1, NUM_ROWS):
        heat[t] = 0.8 * heat[t - 1] + valve[t] + 0.1 * rng.normal()
    time = np.datetime64("2024-02-27T00:00:00") + np.arange(NUM_ROWS) * HOUR
    return {"time": time, "valve": valve, "heat": np.round(heat, 4)}


def small(source):
    adam = Adam(1e-2, clip_norm=5.0)
    return replace(
        own_experiment(source),
        model=TableSizes(latent_size=2, hidden_size=16),
        filter=FilterChoice(AVF(encode_observation=True, hidden_size=16, num_layers=1)),
        optimizer=Optimizers(adam, adam, num_phi_steps=2),
        schedule=Schedule(num_epochs=4, batch_size=16, num_steps=24, windows_per_epoch=800),
    )


@pytest.fixture(scope="module")
def fitted():
    return TableFilter(inputs=["valve"], calendar=False, choose=small).fit(heater())


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "heater"
    fitted.save(path)
    return path


def history(num_rows=100):
    return {name: column[:num_rows] for name, column in heater().items()}


def written(path, data):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(data)
        table.writerows(zip(*data.values(), strict=True))
    return path


def test_a_forecast_follows_the_plan_of_the_valve(fitted):
    past = history()
    after = past["time"][-1] + np.arange(1, 13) * HOUR

    def heat(valve):
        plan = {"time": after, "valve": np.full(12, valve)}
        found = fitted.forecast(12, past, inputs=plan)
        assert list(found["time"]) == list(after)
        return found["heat_mean"][-1]

    # After 12 steps 1 - 0.8^12 = 93% of the way to valve / 0.2 is gone, whatever the past was.
    # Four epochs learn it roughly: a fifth of the distance between the two plans, which is 10.
    assert heat(0.0) == pytest.approx(0.07 * past["heat"][-1], abs=2.0)
    assert heat(2.0) == pytest.approx(10 - 0.07 * (10 - past["heat"][-1]), abs=2.0)


def test_rows_with_nothing_but_inputs_are_the_steps_ahead(fitted):
    past = history()
    valve = np.array([0.0, 2.0, 1.0, 1.0])
    after = past["time"][-1] + np.arange(1, 5) * HOUR
    longer = {
        "time": np.concatenate([past["time"], after]),
        "valve": np.concatenate([past["valve"], valve]),
        "heat": np.concatenate([past["heat"], np.full(4, np.nan)]),
    }
    one = fitted.forecast(3, longer)
    two = fitted.forecast(3, past, inputs={"valve": valve})
    assert list(one) == list(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    # To filter, they are steps at which nothing was read.
    assert len(fitted.filter(longer)["time"]) == 104


def test_commands(folder, tmp_path):
    past, plan = history(), {"valve": np.ones(6)}
    table, ahead = written(tmp_path / "past.csv", past), written(tmp_path / "plan.csv", plan)
    rows = succeed("forecast", folder, table, "--horizon", 6, "--inputs", ahead).out.splitlines()
    assert len(rows) == 6
    expected = list(forecast_data(Run.load(folder), past, 6, inputs=plan))
    assert [json.loads(row)["heat_mean"] for row in rows] == pytest.approx(
        [row["heat_mean"] for row in expected], rel=1e-6
    )
    message = refuse("forecast", folder, table, "--horizon", 6)
    assert "valve" in message
    assert "`--inputs`" in message
    message = refuse("forecast", folder, table, "--horizon", 7, "--inputs", ahead)
    assert "of 6 steps" in message

    # Lines that have the inputs alone, at the end, are the steps ahead.
    lines = [
        {"time": str(time), "valve": valve, "heat": heat}
        for time, valve, heat in zip(*past.values(), strict=True)
    ]
    told = "\n".join(map(json.dumps, [*lines, *[{"valve": 1.0}] * 6]))
    live = succeed("forecast", folder, "-", "--horizon", 6, stdin=told).out.splitlines()
    assert [json.loads(row)["heat_mean"] for row in live] == pytest.approx(
        [row["heat_mean"] for row in expected], rel=1e-5
    )

    # The filtered rows of lines are those of the table.
    told = "\n".join(map(json.dumps, lines[:20]))
    live = [json.loads(row) for row in succeed("filter", folder, "-", stdin=told).out.splitlines()]
    rows = list(filter_data(Run.load(folder), {name: c[:20] for name, c in past.items()}))
    for name in ("heat_mean", "surprise"):
        assert [row[name] for row in live[1:]] == pytest.approx(
            [row[name] for row in rows[1:]], rel=1e-4, abs=1e-4
        )

    out = tmp_path / "made.csv"
    succeed("sample", folder, "--num-steps", 6, "--inputs", ahead, "--out", out)
    assert len(list(csv.DictReader(io.StringIO(out.read_text())))) == 6
    assert "valve" in refuse("sample", folder, "--num-steps", 6, "--out", out)
    message = refuse("train", table, "--data.inputs", "vavle", "--out", tmp_path / "none")
    assert "valve" in message


def test_inputs_on_the_command_line_with_commas_or_spaces(tmp_path):
    data = heater() | {"a,b": np.arange(float(NUM_ROWS))}
    table = written(tmp_path / "heater.csv", data)
    for given in (["valve,a,b"], ["valve", "a,b"], ["a,b,valve"]):
        words = ("data", "check", table, "--inputs", *given, "--calendar", "none", "--json")
        if given[0] == "valve":
            notes = json.loads(succeed(*words).out)["notes"]
            assert any("not predicted: valve, a,b." in note for note in notes)
        else:  # a column whose name has a comma is named by itself
            assert "'a'" in refuse(*words)
    found = succeed("data", "check", table, "--calendar", "day,week", "--json")
    assert "day, week" in " ".join(json.loads(found.out)["notes"])


def test_made_up_rows_follow_their_inputs(folder):
    run = Run.load(folder)
    scaling = run.template.scaling
    high, low = (
        scaling.restore(np.stack([made.xs for made in sample_run(run, 30, 2, inputs=inputs)]))
        for inputs in ({"valve": np.full(30, valve)} for valve in (2.0, 0.0))
    )
    # As in the forecasts above, far from the start.
    assert (high[:, -5:] - low[:, -5:]).mean() > 5.0


def test_scores_coverage_and_reports_are_told_the_inputs(fitted):
    run = fitted.run
    trained = run.trained()
    dataset = _dataset(run)
    key = jax.random.key(0)
    told = evaluate(trained.filter, trained.model, dataset, key)
    # The same run, told that the valve was elsewhere, must be more surprised.
    mixed = {split: replace_values(us) for split, us in dataset.inputs.items()}
    misled = evaluate(trained.filter, trained.model, replace(dataset, inputs=mixed), key)
    assert told.nats < misled.nats - 1.0
    # A report looks closely with the same draws.
    (looked,) = inspect_sequences(
        trained.filter, trained.model, dataset, key, np.array([0]),
        split="test", inspection=Inspection(num_steps=len(dataset.test[0]), num_samples=4),
    )  # fmt: skip
    np.testing.assert_allclose(looked.surprise.sum(), told.free_energy[0], rtol=1e-4)
    covered = forecast_coverage(
        trained.filter, trained.model, dataset, key, horizon=8, every=8, num_samples=100
    )
    lost = forecast_coverage(
        trained.filter, trained.model, replace(dataset, inputs=mixed), key,
        horizon=8, every=8, num_samples=100,
    )  # fmt: skip
    assert covered.share > lost.share + 0.2


def test_windows_have_the_inputs_of_their_steps():
    dataset = _dataset_of(heater())
    windows = {
        on_device: RandomWindows(dataset, 12, 4, on_device=on_device) for on_device in (True, False)
    }
    batches = {on: each.windows(3, jax.random.key(1)) for on, each in windows.items()}
    np.testing.assert_array_equal(batches[True].us, batches[False].us)
    # Both columns of a row are recognised by its time.
    heat = dataset.observations(dataset.train.values)[:, 0]
    for xs, us in zip(batches[True].xs, batches[True].us, strict=True):
        place = int(np.flatnonzero(np.isclose(heat, float(xs[0, 0]), atol=1e-6))[0])
        np.testing.assert_allclose(us, dataset.inputs["train"].values[place : place + 12])


def _dataset_of(data):
    from varfilter.data.tables.read import read_table

    return read_table(data, inputs=["valve"], calendar=False)


def _dataset(run):
    dataset = _dataset_of(heater())
    assert dataset.sha256() == run.record["data"]["sha256"]
    return dataset


def replace_values(us):
    from varfilter.data.ragged import Ragged

    return Ragged(us.values[::-1].copy(), us.lengths)
