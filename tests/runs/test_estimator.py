"""The estimator of tables: scikit-learn's conventions, new rows, scores and pictures."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

from varfilter.experiments import Baseline, Experiment, FilterChoice, Schedule, VRNNSizes
from varfilter.plots.tables import Band, draw_bands
from varfilter.runs import Run, TableFilter, filter_data
from varfilter.runs.estimator import NotFittedError


def choose(source):
    """A small experiment that is quickly compiled, for a moment."""
    model = VRNNSizes(*[2] * 6, num_layers=1)
    schedule = Schedule(num_epochs=3, batch_size=4, num_steps=8, epochs_per_validation=1)
    return Experiment("pumps", source, model, FilterChoice(Baseline(2)), schedule=schedule)


def pumps(num_steps, seed=0, level=20.0):
    """Three pumps of a temperature and a switch, a minute from row to row."""
    rng = np.random.default_rng(seed)
    warm = level + np.cumsum(rng.normal(0.0, 0.3, (3, num_steps)), axis=1)
    times = np.datetime64("2024-03-04T00:00:00") + 60 * np.arange(num_steps)
    return {
        "pump": np.repeat(["a", "b", "c"], num_steps),
        "when": np.tile(times, 3),
        "warm": np.round(warm, 3).ravel(),
        "is_on": rng.integers(0, 2, 3 * num_steps),
    }


@pytest.fixture(scope="module")
def fitted():
    made = TableFilter(sequence="pump", time="when", choose=choose, alarm_rate=0.05)
    assert made.fit(pumps(60)) is made
    return made


def test_the_conventions_of_scikit_learn():
    base = pytest.importorskip("sklearn.base")
    columns, kinds = ["warm"], {"warm": "numeric level"}
    made = TableFilter(sequence="pump", columns=columns, kinds=kinds, num_epochs=2)
    # As they were given: another object with the same content is another argument.
    assert made.get_params()["columns"] is columns
    copied = base.clone(made)
    assert copied is not made
    assert copied.get_params() == made.get_params()
    assert made.set_params(num_epochs=5, seed=3) is made
    assert (made.num_epochs, made.seed, copied.num_epochs) == (5, 3, 2)
    with pytest.raises(ValueError, match="`epochs` is no argument"):
        made.set_params(epochs=5)
    assert repr(copied) == (
        "TableFilter(sequence='pump', columns=['warm'], kinds={'warm': 'numeric level'},"
        " num_epochs=2)"
    )
    for call in (made.filter, made.score, made.update, made.plot):
        with pytest.raises(NotFittedError, match="not fitted"):
            call(pumps(20))


def hours(num_rows):
    """One sensor, an hour from row to row, as a pandas frame."""
    pandas = pytest.importorskip("pandas")
    warm = np.cumsum(np.random.default_rng(0).normal(size=num_rows))
    when = pandas.date_range("2024-01-01", periods=num_rows, freq="h")
    return pandas.DataFrame({"when": when, "warm": warm})


def test_scikit_learn_asks_what_it_is_and_whether_it_is_fitted(fitted):
    pytest.importorskip("sklearn", minversion="1.6")  # there were no tags before
    from sklearn.exceptions import NotFittedError as NotFittedThere
    from sklearn.utils import get_tags
    from sklearn.utils.validation import check_is_fitted

    with pytest.raises(NotFittedThere):
        check_is_fitted(TableFilter())
    check_is_fitted(fitted)
    tags = get_tags(fitted)
    assert tags.input_tags.allow_nan
    assert tags.requires_fit
    assert not tags.target_tags.required


def test_searches_cut_frames_into_folds(monkeypatch):
    """What is trained and how it scores is made up: the slow test below has it all."""
    pytest.importorskip("sklearn")
    from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
    from sklearn.pipeline import make_pipeline

    def score(self, X, y=None):
        (sequence,) = self._sequences(X)
        return len(sequence.xs) / self.run.experiment.schedule.num_epochs

    monkeypatch.setattr("varfilter.runs.estimator.train_run", lambda *_: iter(()))
    monkeypatch.setattr(TableFilter, "_compare", lambda self: None)
    monkeypatch.setattr(TableFilter, "score", score)
    made, frame, folds = TableFilter(choose=choose), hours(120), TimeSeriesSplit(2)
    assert cross_val_score(made, frame, cv=folds).tolist() == [40 / 3, 40 / 3]
    search = GridSearchCV(made, {"num_epochs": [4, 2]}, cv=folds, error_score="raise").fit(frame)
    assert search.best_params_ == {"num_epochs": 2}
    assert search.cv_results_["mean_test_score"].tolist() == [10.0, 20.0]
    assert search.best_estimator_.run.template.schema.columns == ("warm",)
    assert search.score(frame) == 60.0
    assert make_pipeline(made).fit(frame).score(frame) == 40.0


@pytest.mark.slow  # compiles for folds of several lengths
@pytest.mark.filterwarnings("ignore:The model is no better", "ignore:Forecasts are")
def test_a_search_by_folds_of_time():
    pytest.importorskip("sklearn")
    from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

    grid, folds = {"num_epochs": [1, 2]}, TimeSeriesSplit(2)
    search = GridSearchCV(TableFilter(choose=choose), grid, cv=folds, error_score="raise")
    search.fit(hours(120))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert search.score(hours(120)) == best.score(hours(120))


def test_fit_compares_with_what_takes_no_training(fitted):
    found = fitted.comparison_
    assert {"model", "last value", "linear model"} <= set(found["columns"])
    assert fitted.run.record["comparison"] == {n: each["1"] for n, each in found["nats"].items()}


def test_a_clone_of_a_fitted_filter_is_not_fitted(fitted):
    base = pytest.importorskip("sklearn.base")
    with pytest.raises(NotFittedError):
        base.clone(fitted).filter(pumps(20))


def test_the_score_is_the_mean_log_score_of_what_was_seen(fitted):
    new = pumps(20, seed=1)
    new["warm"][5] = np.nan
    new["warm"][30], whole = np.nan, np.ones(60, bool)
    new["is_on"] = new["is_on"].astype(float)
    new["is_on"][30] = np.nan  # of this step nothing is there
    whole[[0, 20, 40, 30]] = False
    found = fitted.filter(new)
    assert fitted.score(new) == pytest.approx(-np.mean(found["surprise"][whole]), rel=1e-5)
    with pytest.raises(ValueError, match="no step to score"):
        fitted.score({name: values[:1] for name, values in new.items()})


def test_alarms_go_where_the_filter_goes(fitted, tmp_path):
    """Although the rows were in memory: they are calibrated before they are left behind."""
    new = pumps(20, seed=1)
    new["warm"][10] += 500.0
    found = fitted.filter(new)
    # What is the user's own comes back as it came, predictions are numbers.
    assert (found["is_on"].dtype, found["warm"].dtype) == (new["is_on"].dtype, np.float64)
    assert found["alarm"][10] == 1
    assert found["p_value"][10] < 0.01
    assert found["alarm_cause"][10].startswith("warm: 5")
    assert ", expected " in found["alarm_cause"][10]
    assert found["warm_surprise"][10] > found["warm_surprise"][9]
    fitted.save(tmp_path / "kept")
    loaded = TableFilter.load(tmp_path / "kept")
    assert (loaded.alarm_rate, loaded.num_epochs, loaded.split) == (0.05, None, "auto")
    # The folder of a run says as much as it knows.
    plain = TableFilter.load(fitted.run.folder)
    assert (plain.alarm_rate, plain.num_epochs, plain.split) == (None, 3, "auto")
    rows = list(filter_data(Run.load(tmp_path / "kept"), new, alarm_rate=0.05))
    np.testing.assert_array_equal(found["p_value"], [row["p_value"] for row in rows])
    assert [row["alarm"] for row in rows] == found["alarm"].tolist()


def test_tables_too_small_for_alarms_have_their_columns_and_say_so(tmp_path):
    """Of 60 rows in a sequence 6 are validated, of which the first is given."""
    table = {name: column[:60] for name, column in pumps(60).items() if name != "pump"}
    small = TableFilter(time="when", choose=choose, num_epochs=1)
    with pytest.warns(UserWarning, match=r"no alarms: .* has 5 steps .* about 372 rows or more"):
        small.fit(table)
    with pytest.warns(UserWarning, match="There are no alarms") as told:
        found = small.filter(table)
    assert len([each for each in told if "There are no alarms" in str(each.message)]) == 1
    assert np.isnan(found["alarm"]).all()
    assert np.isnan(found["p_value"]).all()
    assert found["alarm_cause"].tolist() == [""] * 60
    assert np.isfinite(found["surprise"][1:]).all()
    # As alarms that were not asked for: nothing is said, and no column is there.
    found = small.set_params(alarm_rate=0.0).filter(table)
    assert "alarm" not in found


def test_new_rows_are_learned_beside_the_old_ones(fitted):
    other = TableFilter(sequence="pump", time="when", choose=choose)
    other._run, other._dataset, other._fitted = fitted._run, fitted._dataset, fitted._fitted
    before, old = other.run, other._dataset
    new = pumps(40, seed=2, level=26.0)
    assert other.update(new, num_epochs=1) is other
    assert other.run.folder != before.folder
    joined = other._dataset
    # The last fifth of each of three new sequences is for validation.
    assert len(joined.train) == len(old.train) + 3
    assert len(joined.valid) == len(old.valid) + 3
    assert joined.valid.lengths[-3:].tolist() == [8, 8, 8]
    # Units and kinds are those that the parameters were learned in.
    np.testing.assert_array_equal(joined.scaling.scale, before.template.scaling.scale)
    assert other.run.template.schema.columns == before.template.schema.columns
    # It went on from what was learned: no further than a few updates lead.
    first, last = before.trained().model, other.run.trained().model
    assert _distance(first, last) < 0.3 * _distance(first, _drawn(before))
    assert other.forecast(2, num_samples=8)["step"].tolist() == [1, 2] * 3


@pytest.mark.slow  # compiles the updates for other data
def test_without_the_old_rows_the_new_ones_are_all_there_is(fitted, tmp_path):
    fitted.save(tmp_path / "kept")
    new = pumps(40, seed=2, level=26.0)
    loaded = TableFilter.load(tmp_path / "kept")
    loaded.update(new, num_epochs=1)
    assert len(loaded._dataset.train) == 3


def test_rows_of_which_no_end_can_be_judged_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "kept")
    short = {name: values[:4] for name, values in pumps(40).items()}
    with pytest.raises(ValueError, match="no sequence of 10 rows"):
        TableFilter.load(tmp_path / "kept").update(short)


def _distance(one, other):
    leaves = (jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)) for model in (one, other))
    squares = (np.sum(np.square(np.asarray(a - b))) for a, b in zip(*leaves, strict=True))
    return float(np.sqrt(sum(squares)))


def _drawn(run):
    """The parameters that a run with another seed would begin with."""
    return replace(run.experiment, seed=9).build(run.template).model


def test_a_picture_has_bands_alarms_and_a_fan(fitted):
    new = pumps(20, seed=1)
    new["warm"][30] += 500.0
    figure = fitted.plot(new, sequence="b", horizon=4)
    warm, is_on = figure.axes
    assert [axis.get_title(loc="left") for axis in (warm, is_on)] == ["warm", "is_on"]
    # The band and the fan; a column of 0 and 1 has none.
    assert len(warm.collections) == 2
    assert not is_on.collections
    seen = next(line for line in warm.lines if line.get_marker() == ".")
    np.testing.assert_allclose(seen.get_ydata(), new["warm"][20:40])
    circles = next(line for line in warm.lines if line.get_marker() == "o")
    assert np.isclose(circles.get_ydata(), new["warm"][30]).any()
    with pytest.raises(ValueError, match="`sequence` is 'z', but `frame` has a, b, c"):
        fitted.plot(new, sequence="z")


def test_columns_that_never_change_are_not_drawn(fitted):
    dataset = fitted.run.template
    values = np.column_stack([np.arange(5.0), np.ones(5)])
    band = Band(np.arange(5), values, values - 1, values + 1)
    assert len(draw_bands(dataset, values, band).axes) == 1
    assert len(draw_bands(dataset, np.ones((5, 2)), band).axes) == 2
