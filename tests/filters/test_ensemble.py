"""An ensemble: several models that predict together, held against each of them alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
import worlds
from varfilter.filters import EnsembleFilter, of_each_member, share_of_member
from varfilter.inference import Exact
from varfilter.learning import EnsembleLearner
from varfilter.models import Ensemble
from varfilter.testing import check_filter

NUM_STEPS = 10
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def models():
    return [worlds.linear_gaussian(seed=seed) for seed in (0, 1, 2)]


@pytest.fixture(scope="module")
def xs():
    values = np.random.default_rng(0).normal(size=(NUM_STEPS, 2)).astype(np.float32)
    values[3, 0] = values[5] = values[6] = np.nan
    return values


def log_mean_exp(values):
    return np.log(np.mean(np.exp(np.asarray(values, np.float64)), axis=0))


def test_the_bound_is_the_log_of_the_mean_of_exact_predictive_densities(models, xs):
    alone = [vf.run(vf.KalmanFilter(), model, xs)[1] for model in models]
    ensemble = EnsembleFilter([vf.KalmanFilter()] * 3)
    _, together = vf.run(ensemble, Ensemble(models), xs, KEY)
    expected = log_mean_exp([each.bound for each in alone])
    # Sums of three logarithms of some nats, in float32.
    np.testing.assert_allclose(together.bound, expected, atol=2e-5)
    assert together.bound[5] == together.bound[6] == 0.0  # nothing was observed
    means = np.mean([np.asarray(jax.vmap(lambda p: p.mean)(e.prediction)) for e in alone], axis=0)
    found = jax.vmap(lambda p: p.mean)(together.prediction)
    np.testing.assert_allclose(found, means, atol=1e-5)
    for posterior, each in zip(together.posterior, alone, strict=True):
        np.testing.assert_allclose(posterior.mean, each.posterior.mean, atol=1e-5)


def test_predictions_and_forecasts_are_of_all_members(models, xs):
    filter, model = EnsembleFilter([vf.KalmanFilter()] * 3), Ensemble(models)
    belief, _ = vf.run(filter, model, xs, KEY)
    beliefs = [vf.run(vf.KalmanFilter(), each, xs)[0] for each in models]
    count = 4000
    found = vf.forecast(filter, model, belief, 3, KEY, num_samples=count)
    alone = [
        vf.forecast(vf.KalmanFilter(), each, own, 3, KEY, num_samples=count)
        for each, own in zip(models, beliefs, strict=True)
    ]
    samples = np.stack([np.asarray(each.samples) for each in alone])
    mean, std = samples.mean((0, 1)), samples.std((0, 1))
    # Four standard errors of the difference of two means of that many draws.
    slack = 4 * std / np.sqrt(count) * np.sqrt(1 + 1 / 3)
    assert (np.abs(np.asarray(found.samples).mean(0) - mean) < slack).all()
    # The spread between members is in that of the ensemble.
    np.testing.assert_allclose(np.asarray(found.samples).std(0), std, rtol=0.1)
    assert (std > samples.std(1).min(0)).all()


def test_each_member_is_filtered_as_it_would_be_alone(models, xs):
    """The same states and posteriors, with the key of its step."""
    filters = [vf.VariationalFilter(Exact()), vf.VariationalFilter(Exact())]
    filter, model = EnsembleFilter(filters), Ensemble(models[:2])

    @eqx.filter_jit
    def first_step(filter, model, key):
        return filter.step(model, filter.init(model), jnp.asarray(xs[3]), key)

    after, filtered = first_step(filter, model, KEY)
    for m, key in enumerate(filter.keys(KEY)):
        own, expected = first_step(filters[m], models[m], key)
        found = jax.tree.map(lambda leaf, m=m: leaf[m], after)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(own), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
        np.testing.assert_allclose(filtered.posterior[m].mean, expected.posterior.mean, atol=1e-6)


def test_an_ensemble_conforms():
    """Stream is run, chunks, padding, gaps, draws: what holds of any filter."""
    model = worlds.ensemble()
    keys = jax.random.split(KEY, 2)
    inferences = [
        vf.Iterative(model.member(m), hidden_size=6, num_layers=1, key=keys[m]) for m in (0, 1)
    ]
    check_filter(EnsembleFilter(list(map(vf.VariationalFilter, inferences))), model, KEY)


def test_every_member_learns_as_it_would_alone():
    model = worlds.ensemble()
    keys = jax.random.split(KEY, 2)
    members = [model.member(m) for m in (0, 1)]
    filters = [
        vf.VariationalFilter(vf.Iterative(each, hidden_size=6, num_layers=1, key=key))
        for each, key in zip(members, keys, strict=True)
    ]
    learner = vf.TimeParallel(theta=optax.adam(1e-2), phi=optax.adam(1e-2), num_phi_steps=2)
    together = EnsembleLearner(learner)
    state = together.init(model, EnsembleFilter(filters))
    batch = np.random.default_rng(1).normal(size=(4, 5, 3)).astype(np.float32)
    state, metrics = together.update(state, batch, KEY)
    energies = []
    for m, key in enumerate(jax.random.split(KEY, 2)):
        share = batch[2 * m : 2 * m + 2]
        alone, own = learner.update(learner.init(members[m], filters[m]), share, key)
        energies.append(own.free_energy)
        for part, expected in (
            (state.model.members, alone.model), (state.filter.members, alone.filter),
        ):  # fmt: skip
            leaves = jax.tree.leaves(eqx.filter(part, eqx.is_array))
            for one, other in zip(
                leaves, jax.tree.leaves(eqx.filter(expected, eqx.is_array)), strict=True
            ):
                # Adam's first step is the sign of the gradient: what rounds to another sign is 0.
                np.testing.assert_allclose(one[m], other, atol=2e-5)
    np.testing.assert_allclose(metrics.free_energy, np.mean(energies), rtol=1e-5)
    assert int(state.num_updates) == 1
    assert int(state.num_skipped) == 0


def test_a_member_that_cannot_learn_is_counted_and_the_others_go_on():
    model = worlds.ensemble()
    leaves, structure = jax.tree.flatten(model)
    broken = jax.tree.unflatten(structure, [leaves[0].at[0].set(jnp.nan), *leaves[1:]])
    learner = EnsembleLearner(vf.TimeParallel(theta=optax.adam(1e-2), phi=None))
    state = learner.init(broken, EnsembleFilter([vf.VariationalFilter(vf.Prior())] * 2))
    batch = np.zeros((2, 3, 3), np.float32)
    after, metrics = learner.update(state, batch, KEY)
    assert int(metrics.num_skipped) == int(after.num_skipped) == 1
    assert int(after.last_skipped) == 0
    for one, other in zip(jax.tree.leaves(after.model), jax.tree.leaves(broken), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    moved = jax.tree.map(lambda a, b: (a[1] != b[1]).any(), after.model.members, broken.members)
    assert any(jax.tree.leaves(moved))


@pytest.mark.parametrize("outlier", [1e6, 1e30, -3e38])
def test_an_absurd_reading_is_outlived(models, outlier):
    filter, model = EnsembleFilter([vf.KalmanFilter()] * 3), Ensemble(models)
    clean = np.random.default_rng(4).normal(size=(60, 2)).astype(np.float32)
    clean[9, 0] = np.nan
    absurd = clean.copy()
    absurd[9, 0] = outlier
    (_, one), (_, other) = (vf.run(filter, model, xs, KEY) for xs in (absurd, clean))
    assert np.isfinite(one.bound).all()
    assert np.argmax(-np.asarray(one.bound)) == 9
    means = [np.asarray(jax.vmap(lambda p: p.mean)(each.prediction)) for each in (one, other)]
    np.testing.assert_allclose(means[0][-1], means[1][-1], rtol=0.05, atol=0.05)


def test_trajectories_are_shared_and_changes_are_of_each_member():
    filter = EnsembleFilter([vf.VariationalFilter(vf.Prior())] * 3)
    assert share_of_member(filter, 64) == 22
    assert share_of_member(filter.members, 64) == 64
    many = of_each_member(filter, lambda each: vf.ParticleFilter(each.inference, 5))
    assert isinstance(many, EnsembleFilter)
    assert many.members.num_particles == 5
    assert of_each_member(filter.members, lambda each: each) is filter.members


def test_what_is_no_ensemble_is_refused(models):
    filter = EnsembleFilter([vf.KalmanFilter()] * 2)
    with pytest.raises(TypeError, match=r"`EnsembleFilter` of 2 members.*as many.*LinearGaussian"):
        vf.start(filter, models[0])
    with pytest.raises(TypeError, match="got one of 3"):
        vf.start(filter, Ensemble(models))
    with pytest.raises(TypeError, match="Use the learner of a member"):
        EnsembleLearner(vf.TimeParallel(theta=None, phi=None)).init(
            models[0], vf.VariationalFilter(Exact())
        )
    learner = EnsembleLearner(vf.TimeParallel(theta=None, phi=None))
    state = learner.init(worlds.ensemble(), EnsembleFilter([vf.VariationalFilter(vf.Prior())] * 2))
    with pytest.raises(ValueError, match="3 sequences, which cannot be shared equally among 2"):
        learner.update(state, np.zeros((3, 4, 3)), KEY)
    with pytest.raises(ValueError, match="one structure"):
        Ensemble([models[0], worlds.ensemble().member(0)])
