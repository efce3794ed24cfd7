"""The linear reference against the Kalman filter, and against worlds whose answer is known."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import varfilter as vf
from varfilter.data.continued import continued
from varfilter.data.tables.read import read_table
from varfilter.media import linear
from varfilter.media.gaussians import Gaussians, reference_gaussians
from varfilter.media.linear import (
    fit_linear,
    kept_linear,
    linear_predictions,
    linear_start,
    load_linear,
    log_evidences,
)
from varfilter.training.predictive_draws import origins
from varfilter.training.predictive_scores import column_scores

RNG = np.random.default_rng(0)


def walk(num_rows=600, noise=0.5):
    """A random walk of steps of 1 that is seen with noise."""
    steps = np.random.default_rng(3).normal(size=(2, num_rows))
    return {"level": 100.0 + np.cumsum(steps[0]) + noise * steps[1]}


def scored(dataset, model, sequences, horizon):
    """What the model predicts so many steps ahead of every step, and how well."""
    predictor = functools.partial(linear_predictions, model, dataset)
    found = reference_gaussians(predictor, sequences, (horizon,), 1)[horizon]
    xs = [each.xs[origins(each, horizon, 1) + horizon - 1] for each in sequences]
    return found.scored(dataset, np.concatenate(xs).astype(np.float64))


@pytest.fixture(scope="module")
def table():
    dataset = read_table(walk(), kinds={"level": "change"})
    return dataset, fit_linear(dataset)


def test_one_column_after_another_is_the_kalman_filter():
    size, latent = 2, 4
    model = vf.LinearGaussian(
        transition=0.8 * np.linalg.qr(RNG.normal(size=(latent, latent)))[0].astype(np.float32),
        process_covariance=np.diag([0.5, 0.3, 0.2, 0.4]).astype(np.float32),
        loading=RNG.normal(size=(size, latent)).astype(np.float32),
        noise_covariance=np.diag([0.4, 0.1]).astype(np.float32),
        transition_bias=RNG.normal(size=latent).astype(np.float32),
        loading_bias=RNG.normal(size=size).astype(np.float32),
        transition_input=RNG.normal(size=(latent, 1)).astype(np.float32),
        loading_input=RNG.normal(size=(size, 1)).astype(np.float32),
    )
    xs, us = RNG.normal(size=(12, size)), RNG.normal(size=(12, 1))
    xs[3] = np.nan
    xs[5:8, 0] = np.nan
    xs, us = jnp.asarray(xs, jnp.float32), jnp.asarray(us, jnp.float32)
    found = jax.jit(log_evidences)(model, xs, us, np.zeros(size, bool))
    _, filtered = vf.run(vf.KalmanFilter(), model, xs, us=us)
    # Both in float32, one by covariances and one by their roots.
    np.testing.assert_allclose(found, filtered.bound, rtol=1e-4, atol=1e-5)


def test_a_random_walk_with_noise_is_predicted_as_well_as_can_be(table):
    dataset, model = table
    sequences = continued(dataset, "test")
    scores = column_scores(dataset, scored(dataset, model, sequences, 1))["level"]
    # The filter that knows this world, in its steady state: p = p r / (p + r) + 1, r = 1/4.
    predicted = 0.5 * (1.0 + np.sqrt(2.0))
    level, errors = 100.0, []
    for value in walk()["level"]:
        errors.append(value - level)
        level += predicted / (predicted + 0.25) * errors[-1]
    best = np.sqrt(np.mean(np.square(errors[-scores["num_values"] :])))
    # Two parameters of 480 rows cost two in a thousand of the variance; what else is learned of
    # one column is held back.
    assert scores["rmse"] == pytest.approx(best, rel=0.03)
    nats = -stats.norm(0.0, np.sqrt(predicted + 0.25)).logpdf(errors[-scores["num_values"] :])
    scale = np.asarray(dataset.scaling.scale).item()
    # Of 480 rows a spread is known to three in a hundred; these errors are wider than most.
    assert scores["nats"] + np.log(scale) == pytest.approx(np.mean(nats), abs=0.1)
    # As many as of the filter that knows this world, give or take two of the 60.
    inside = np.abs(errors[-scores["num_values"] :]) < 1.645 * np.sqrt(predicted + 0.25)
    assert scores["within_90"] == pytest.approx(np.mean(inside), abs=2.5 / 60)
    ahead = column_scores(dataset, scored(dataset, model, sequences, 5))["level"]
    assert ahead["num_values"] == scores["num_values"] - 4
    assert ahead["rmse"] > scores["rmse"]


def test_it_is_learned_once_and_kept(table, tmp_path, monkeypatch):
    dataset, model = table
    path = tmp_path / "linear.safetensors"
    asked = []

    def fit(given):
        asked.append(given)
        return model

    monkeypatch.setattr(linear, "fit_linear", fit)
    for _ in range(2):
        again = kept_linear(path, dataset)
        assert eqx.tree_equal(again, model)
    # Without the rows, as where a forecast is made on another machine.
    assert eqx.tree_equal(jax.tree.map(jnp.asarray, load_linear(path, dataset)), model)
    assert asked == [dataset]
    # What is damaged, or of other data, is learned anew.
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    kept_linear(path, dataset)
    assert len(asked) == 2
    kept_linear(path, read_table(walk(noise=0.4), kinds={"level": "change"}))
    assert len(asked) == 3


def test_logarithms_are_log_normal():
    xs, mean, spread = np.array([[1.7]]), np.array([[0.3]]), np.array([[0.6]])
    dataset = read_table({"x": np.arange(30.0) + 0.5})
    found = Gaussians(mean, spread, np.array([True])).scored(dataset, xs)
    oracle = stats.lognorm(s=0.6, scale=np.exp(0.3))
    assert found.mean[0, 0] == pytest.approx(oracle.mean(), rel=1e-9)
    assert found.nats[0, 0] == pytest.approx(-oracle.logpdf(1.7), rel=1e-9)
    assert found.quantiles[0, 0, 0] == pytest.approx(oracle.ppf(0.05), rel=1e-9)
    below = integrate.quad(lambda y: oracle.cdf(y) ** 2, 0, 1.7)[0]
    above = integrate.quad(lambda y: (oracle.cdf(y) - 1) ** 2, 1.7, np.inf)[0]
    assert found.crps[0, 0] == pytest.approx(below + above, rel=1e-6)


def test_flags_and_growth_start_from_finite_numbers():
    """A column of each kind: what is learned is finite, whatever it starts from."""
    rows = 80
    rng = np.random.default_rng(2)
    columns = {
        "grows": np.exp(0.02 * np.arange(rows) + 0.01 * rng.normal(size=rows).cumsum()),
        "valve": (rng.random(rows) < 0.3).astype(float),
        "flat": np.full(rows, 3.0),
    }
    columns["grows"][10:14] = np.nan
    dataset = read_table(columns, kinds={"grows": "log-change"})
    # What is missing is told as missing, and not as the logarithm of next to nothing.
    xs = dataset.observations(np.asarray(dataset.train[0]))
    told = linear.Units.of(dataset).transformed(xs)
    np.testing.assert_array_equal(np.isnan(told), np.isnan(xs))
    np.testing.assert_allclose(told[9, 0] * linear.Units.of(dataset).unit[0], np.log(xs[9, 0]))
    model = fit_linear(dataset, num_updates=2)
    for leaf in jax.tree.leaves(model):
        assert np.isfinite(leaf).all()
    assert linear_start(dataset).transition[0, 0] == 1.0
    found = scored(dataset, model, continued(dataset, "test"), 1)
    scores = column_scores(dataset, found)
    assert scores["valve"]["within_90"] is None
    assert all(np.isfinite(each["nats"]) for each in scores.values())
