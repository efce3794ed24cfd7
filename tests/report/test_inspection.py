"""The close look at sequences agrees with the scores; calibration finds right predictions right."""

import json

import equinox as eqx
import jax
import numpy as np
import pytest

from tiny_runs import tiny
from varfilter.filtering import start, step
from varfilter.media import Inspection, medium_of
from varfilter.models import widened
from varfilter.plots.figures import most_surprising
from varfilter.report import report, summary
from varfilter.report.inspection import (
    NOMINAL,
    coverage,
    inspect_sequences,
    reliability,
    share_error,
)
from varfilter.runs.applied import applied_filter
from varfilter.training import evaluate


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """(a model, a filter, their data): the table whose step 30 nobody expects."""
    experiment, dataset = tiny("table", tmp_path_factory.mktemp("inspected"))
    model, filter, _ = experiment.build(dataset)
    return model, filter, dataset


def test_the_surprise_of_a_picture_is_that_of_the_scores(table):
    model, filter, dataset = table
    scores = evaluate(filter, model, dataset, jax.random.key(0), batch_size=3)
    (sequence,) = inspect_sequences(
        filter, model, dataset, jax.random.key(0), np.array([1]),
        split="test", inspection=Inspection(num_steps=300),
    )  # fmt: skip
    assert np.sum(sequence.surprise) == pytest.approx(scores.free_energy[1], rel=1e-4)
    assert (sequence.name, sequence.first, sequence.num_steps) == (
        dataset.sequence_names("test")[1], 1, 39,
    )  # fmt: skip
    np.testing.assert_array_equal(np.isnan(sequence.ranks), np.isnan(sequence.xs))
    seen = sequence.ranks[~np.isnan(sequence.ranks)]
    assert ((seen > 0) & (seen < 1)).all()
    assert (sequence.low <= sequence.high).all()
    assert 30 in [each["step"] for each in most_surprising(sequence)]


def test_sound_is_drawn_where_it_is_loudest(table):
    model, filter, dataset = table
    (sequence,) = inspect_sequences(
        filter, model, dataset, jax.random.key(0), np.array([1]),
        split="test", inspection=Inspection(num_steps=300),
    )  # fmt: skip
    window = medium_of(tiny("sound", None)[1]).inspected(sequence)
    # A sequence that is shorter than what is drawn stays whole.
    assert len(window.surprise) == len(sequence.surprise)
    longer = sequence._replace(
        **{
            name: np.concatenate([part, part])
            for name, part in sequence._asdict().items()
            if isinstance(part, np.ndarray)
        }
    )
    window = medium_of(tiny("sound", None)[1]).inspected(longer)
    assert len(window.surprise) == len(window.xs) == 40
    # Both of the unexpected values, at 30 and 69, are loud: they fit in one window.
    assert window.first <= 30 < 69 < window.first + 40
    assert window.surprise[30 - window.first] == longer.surprise[29]
    assert 30 in [each["step"] for each in most_surprising(window)]


def test_ranks_of_right_predictions_cover_as_they_should():
    ranks = np.random.default_rng(0).uniform(size=100_000)
    # Four standard errors of a frequency near one half, sqrt(0.25 / 1e5).
    np.testing.assert_allclose(coverage(ranks), NOMINAL, atol=4 * 0.0016)
    narrow = 0.5 + 0.5 * (ranks - 0.5)
    assert coverage(narrow)[NOMINAL.index(0.5)] == 1.0


def test_probabilities_that_are_right_are_on_the_diagonal():
    rng = np.random.default_rng(0)
    predicted = rng.uniform(size=100_000)
    found = reliability(predicted, (rng.uniform(size=100_000) < predicted).astype(float))
    # Four standard errors in a bin of ten thousand.
    np.testing.assert_allclose(found["observed"], found["predicted"], atol=4 * 0.005)
    assert sum(found["counts"]) == 100_000
    found = reliability(np.array([0.95, 1.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    assert found["counts"] == [1, 2]
    assert found["observed"] == [0.0, 0.5]


def test_trajectories_reconstruct_by_their_weight(table):
    """The mean over z_i of E[x | s_i, z_i], which for one trajectory is the one that it has."""
    model, filter, dataset = table
    options = {"split": "test", "inspection": Inspection(num_steps=300)}
    chosen = (dataset, jax.random.key(0), np.array([1]))
    (one,) = inspect_sequences(applied_filter(filter, 1), model, *chosen, **options)
    (alone,) = inspect_sequences(filter, model, *chosen, **options)
    np.testing.assert_array_equal(one.reconstruction, alone.reconstruction)
    (many,) = inspect_sequences(applied_filter(filter, 8), model, *chosen, **options)
    assert many.reconstruction.shape == many.mean.shape
    assert np.isfinite(many.reconstruction).all()
    # By hand, over the first steps: the same draws, in a program of its own.
    xs = dataset.observations(np.asarray(dataset.test[1]))
    particles = applied_filter(filter, 8)
    key = jax.random.fold_in(jax.random.key(0), 1)
    belief = eqx.filter_jit(start)(particles, model, xs[0], key)
    one_step = eqx.filter_jit(step)
    expected_by = jax.jit(jax.vmap(lambda state, z: model.emission(state, z).mean))
    for t in range(3):
        states = belief.carry.states
        belief, filtered = one_step(particles, model, belief, xs[t + 1], key)
        zs, weights = filtered.posterior.values, np.asarray(filtered.posterior.weights)
        expected = weights @ np.asarray(expected_by(states, zs))
        # 32-bit sums in another order.
        np.testing.assert_allclose(many.reconstruction[t], expected, rtol=1e-4, atol=1e-5)


def test_a_report_says_with_how_many_trajectories_it_predicts(reported, tmp_path):
    run, page, numbers = reported("table")
    (found,) = numbers["runs"]
    assert found["num_particles"] == run.medium.num_particles == 256
    assert "Filtered with 256 weighted trajectories" in page.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="`num_particles`"):
        report([run], tmp_path / "none.html", num_particles=0)


@pytest.mark.slow
def test_what_a_report_draws_is_of_as_many_trajectories(reported, tmp_path, monkeypatch):
    run, _, numbers = reported("table")
    (found,) = numbers["runs"]
    model, trained, _, _ = run.trained()
    # The sequence that is drawn is the worst.
    assert found["drawn"][0]["name"] == found["sequences"]["worst"][0]["name"]
    chosen = np.array([run.dataset.names["test"].index(found["drawn"][0]["name"])])
    peaks = {}
    for count, spread in ((1, 1.0), (256, 1.1)):
        (drawn, *_) = inspect_sequences(
            applied_filter(trained, count), widened(model, spread), run.dataset, jax.random.key(0),
            chosen, split="test", inspection=run.medium.inspection,
        )  # fmt: skip
        peaks[count] = most_surprising(drawn)
    assert found["drawn"][0]["most_surprising"] == peaks[256] != peaks[1]
    # What is compared by column is tested elsewhere, and takes programs of its own.
    monkeypatch.setattr(summary, "compare_run", lambda *_, **__: found["comparison"])
    monkeypatch.setattr(summary, "middle_fan", lambda *_, **__: None)
    alone = report([run], tmp_path / "one.html", num_particles=1)
    (found,) = json.loads(alone.with_suffix(".json").read_text())["runs"]
    assert found["num_particles"] == 1
    assert found["drawn"][0]["most_surprising"] == peaks[1]
    assert "one sampled trajectory, as the paper does" in alone.read_text(encoding="utf-8")


def test_the_error_of_a_share_is_over_sequences():
    rng = np.random.default_rng(0)
    # Independent values: that of a binomial share, whatever sequence they are of.
    owners = np.repeat(np.arange(200), 50)
    inside = rng.uniform(size=10_000) < 0.3
    # The relative error of a spread over 200 sequences is 1 / sqrt(400) = 0.05; four of them.
    assert share_error(inside, owners) == pytest.approx(np.sqrt(0.3 * 0.7 / 10_000), rel=0.2)
    # Values that are alike within a sequence: what counts are the sequences.
    alike = np.repeat(rng.uniform(size=200) < 0.3, 50)
    assert share_error(alike, owners) == pytest.approx(np.sqrt(0.3 * 0.7 / 200), rel=0.2)
    assert share_error(inside[:100], np.zeros(100, int)) > 0
