"""A table whose columns move on, from training to a forecast, and its run as it was on record."""

import json
from dataclasses import replace

import numpy as np
import pytest

from varfilter.experiments import AVF, Adam, FilterChoice, Optimizers, Schedule, TableSizes
from varfilter.experiments.paper import own_experiment
from varfilter.media.formats import write_rows
from varfilter.models import Differenced, Logarithmic
from varfilter.runs import Run, TableFilter
from varfilter.runs.metrics import verdict

NUM_ROWS = 400


def table() -> dict[str, np.ndarray]:
    """A price that doubles again and again, a level that rises, its season, and orders."""
    rng = np.random.default_rng(0)
    t = np.arange(NUM_ROWS)
    level = 100.0 + 0.5 * t + 3.0 * np.sin(2 * np.pi * t / 20) + rng.normal(size=NUM_ROWS)
    level[50:55] = np.nan
    return {
        "price": 10.0 * np.exp(np.cumsum(0.01 + 0.02 * rng.normal(size=NUM_ROWS))),
        "level": level,
        "orders": np.round(50.0 + 1.5 * t + 2.0 * rng.normal(size=NUM_ROWS)),
        "still": rng.normal(size=NUM_ROWS),
    }


def small(source):
    adam = Adam(1e-2, clip_norm=5.0)
    return replace(
        own_experiment(source),
        num_members=1,
        model=TableSizes(latent_size=2, hidden_size=8),
        filter=FilterChoice(AVF(encode_observation=True, hidden_size=8, num_layers=1)),
        optimizer=Optimizers(adam, adam, num_phi_steps=2),
        schedule=Schedule(num_epochs=4, batch_size=16, num_steps=24, windows_per_epoch=400),
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rising.csv"
    columns = table()
    rows = ({name: values[i] for name, values in columns.items()} for i in range(NUM_ROWS))
    write_rows(rows, path)
    return path


@pytest.fixture(scope="module")
def fitted(path):
    # Alarms are tested elsewhere.
    return TableFilter(choose=small, alarm_rate=0.0).fit(path)


@pytest.fixture(scope="module")
def as_levels(path):
    """All columns as they are, after one epoch."""
    kinds = dict.fromkeys(table(), "level")

    def choose(source):
        return small(replace(source, kinds=tuple(f"{name}=level" for name in kinds)))

    return TableFilter(choose=choose, kinds=kinds, num_epochs=1, alarm_rate=0.0).fit(path)


def test_what_was_told_by_its_change_is_predicted_where_no_training_row_was(fitted, path):
    assert fitted.run.template.schema.motions == {
        "price": "log-change",
        "level": "change",
        "orders": "change",
    }
    rows = fitted.filter(path, levels=(0.05, 0.95), num_particles=16)
    values, late = table(), slice(360, None)
    for name in ("price", "level", "orders"):
        seen = values[name][late]
        error = np.sqrt(np.mean((rows[f"{name}_mean"][late] - seen) ** 2))
        last = np.sqrt(np.mean((values[name][359:-1] - seen) ** 2))
        # It has learned for some seconds: near the last value, not in the range of training.
        assert error < 1.3 * last, name
        inside = (rows[f"{name}_q05"][late] <= seen) & (seen <= rows[f"{name}_q95"][late])
        assert np.mean(inside) > 0.6, name
    assert (rows["price_q05"][1:] > 0).all()
    assert np.isfinite(rows["surprise"][1:]).all()


def test_a_forecast_goes_on_from_the_last_value(fitted, path):
    # An odd number of draws, of which one is the median.
    ahead = fitted.forecast(5, path, num_particles=16, num_samples=65)
    last = {name: values[-1] for name, values in table().items()}
    assert ahead["level_mean"][0] == pytest.approx(last["level"], abs=10.0)
    assert ahead["price_mean"][0] == pytest.approx(last["price"], rel=0.3)
    widths = ahead["level_q95"] - ahead["level_q05"]
    assert widths[-1] > widths[0]  # what is not known adds up
    steps = ahead["orders_q50"]
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)


def test_a_saved_run_reads_its_data_and_builds_its_model_as_they_were(fitted, path, tmp_path):
    fitted.save(tmp_path / "run")
    run = Run.load(tmp_path / "run")
    assert run.dataset.sha256() == run.record["data"]["sha256"]
    model = run.trained().model
    assert isinstance(model, Logarithmic)
    assert isinstance(model.model, Differenced)
    again = TableFilter.load(tmp_path / "run").set_params(alarm_rate=0.0)
    assert again.kinds["price"] == "numeric log-change"
    # As many as above: the same program.
    first = fitted.filter(path, levels=(0.05, 0.95), num_particles=16)["surprise"]
    second = again.filter(path, levels=(0.05, 0.95), num_particles=16)["surprise"]
    np.testing.assert_array_equal(second, first)


def test_a_run_of_before_there_were_motions_has_all_columns_as_they_are(as_levels, tmp_path):
    """What is on record decides, not what the rule would say now."""
    fitted = as_levels
    fitted.save(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    text = json.loads(file.read_text())
    # As an earlier version would have written it: nobody had asked, and nothing was on record.
    text["experiment"]["data"]["kinds"] = None
    del text["data"]["schema"]["motions"]
    for family in text["data"]["families"]:
        del family["transform"]
    run = Run(tmp_path / "run", replace(fitted.run.experiment, data=replace(
        fitted.run.experiment.data, kinds=None)), text)  # fmt: skip
    assert run.template.schema.motions == {}
    assert run.dataset.sha256() == text["data"]["sha256"]
    assert run.dataset.schema.motions == {}


def test_a_run_that_is_no_better_than_the_naive_one_says_so_and_a_forecast_repeats_it(
    as_levels, path
):
    """Levels that leave their range after one epoch: the last value is better, and on record."""
    fitted = as_levels
    reference = fitted.run.record["reference"]
    assert reference == fitted.run.medium.reference(fitted.run.dataset, "valid")._asdict()
    assert "no better than the " in verdict(fitted.run)
    assert verdict(Run.load(fitted.run.folder)) == verdict(fitted.run)
    with pytest.warns(UserWarning, match="no better than the "):
        fitted.forecast(2, path, num_particles=4, num_samples=8)
    # A record of before says nothing.
    held_against = ("reference", "comparison")
    record = {name: v for name, v in fitted.run.record.items() if name not in held_against}
    assert verdict(Run(fitted.run.folder, fitted.run.experiment, record)) is None
