"""`Iterative` as it is without a setting: it sees the data through latents of any size."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from varfilter.experiments import AVF, FilterChoice
from varfilter.inference import Gradients, Highway, LayerNorm, PairedGradients
from worlds import KEY, deep_markov, linear_gaussian, observations, scalar_world, standard_error

# Of `scalar_world`, z_t given z_{t-1} and x_t: N(m + GAIN d, SPREAD), d = x_t - C m, var(d) = S.
S = 1.3**2 * 0.5 + 0.4
GAIN, SPREAD = 0.5 * 1.3 / S, 1 / (1 / 0.5 + 1.3**2 / 0.4)


def mean_divergence(inference):
    """E KL(q_t || p(z_t | z_{t-1}, x_t)) in nats, after the network has learned for a while."""
    model = scalar_world()
    sequences = jax.jit(jax.vmap(lambda key: vf.generate(model, 20, key)[0]))
    train, test = (sequences(jax.random.split(jax.random.key(i), 32)) for i in (1, 2))
    num_updates, num_phi_steps = 50, 8
    rate = optax.cosine_decay_schedule(5e-3, num_updates * num_phi_steps)
    learner = vf.TimeParallel(theta=None, phi=optax.adam(rate), num_phi_steps=num_phi_steps)
    state = learner.init(model, vf.VariationalFilter(inference(model)))
    for i in range(num_updates):
        state, _ = learner.update(state, train, jax.random.fold_in(KEY, i))

    @eqx.filter_jit
    def divergences(filter, xs, key):
        filtered = vf.run(filter, model, xs, key)[1]

        def step(q, prior, x):
            mean = prior.mean + GAIN * (x - 1.3 * prior.mean)
            return vf.kl(q, vf.Gaussian.from_covariance(mean, jnp.full((1, 1), SPREAD)))

        # The first prior is the stationary one: GAIN and SPREAD are not those of that step.
        later = jax.tree.map(lambda leaf: leaf[1:], (filtered.posterior, filtered.prior, xs))
        return jax.vmap(step)(*later)

    keys = jax.random.split(jax.random.key(3), len(test))
    found = jax.vmap(lambda xs, key: divergences(state.filter, xs, key))(test, keys)
    return float(jnp.mean(found))


# For a q whose mean does not depend on x_t: KL >= E (mean - its own)^2 / (2 SPREAD), and given the
# past x_t varies by S at least, so that the mean it should have varies by GAIN^2 S.
BLIND = GAIN**2 * S / (2 * SPREAD)


def test_the_defaults_see_the_data_of_a_latent_of_one_element():
    """In 50 updates q comes within a twentieth of what blindness costs (1.06 nats a step)."""
    assert mean_divergence(lambda model: vf.Iterative(model, key=KEY)) < 0.05 * BLIND


@pytest.mark.slow
def test_layer_norm_alone_is_blind_to_it():
    """The paper's form: the layer norm of one number is 0, whatever x_t is."""
    paper = {"signal": Gradients(), "normalize": LayerNorm(), "update": Highway}
    found = mean_divergence(lambda model: vf.Iterative(model, **paper, hidden_size=64, key=KEY))
    # The mean of 608 squares has a standard error of 6%; they are not quite independent.
    assert found > 0.8 * BLIND


def test_an_untrained_network_leaves_the_prior_as_it_is():
    model = deep_markov()
    inference = vf.Iterative(model, num_iterations=3, key=KEY)
    _, filtered = vf.run(vf.VariationalFilter(inference), model, observations(model, 20), KEY)
    # Outputs of weights of 0.01 sqrt(2 / 68) on 64 units of order 1, three times: some 0.04.
    distance = np.abs(filtered.posterior.mean - filtered.prior.mean)
    assert 0 < distance.max() < 0.3


def test_the_size_of_the_network_follows_the_model():
    def size(model, **options):
        return vf.Iterative(model, **options, key=KEY).trunk.carry.out_features

    # Four units for each number of dF/dq and of q, as a power of two from 64 to 1,024.
    assert size(scalar_world()) == 64  # 4 x 2 x (1 + 1) = 16
    assert size(linear_gaussian(latent=3)) == 128  # 4 x 2 x (3 + 9) = 96
    assert size(deep_markov(latent=20)) == 512  # 4 x 2 x (20 + 20) = 320
    assert size(deep_markov(size=100, latent=20), encode_observation=True) == 1024  # 320 + 400
    assert size(vf.SRNN(key=KEY)) == 1024  # the paper's music, 4 x 2 x 200
    assert size(scalar_world(), hidden_size=7) == 7


# Paired draws


def signals(signal, model, narrowing, count):
    """dF/dq at `count` keys, at the prior of the first step, or narrower and beside its mean."""
    state = model.init(None)
    prior = model.prior(state)
    q = prior
    if narrowing:
        # Beside it, since at z = 0 all units of a fresh network are in their kink.
        q = vf.Normal(prior.mean + 0.7, prior.log_var - narrowing)
    x = jnp.asarray(observations(model, 1, 4)[0])
    options = {"prior": prior, "num_samples": 1, "kl_weight": 1.0}
    gradient = jax.jit(jax.vmap(lambda key: signal(q, model, state, x, key, **options)[0]))
    return gradient(jax.random.split(KEY, count)), (prior, state, x)


def test_the_gradient_of_a_mean_from_a_pair_is_exact_for_a_linear_model():
    """log p(x | z) is quadratic in z: its slope at z and at the mirror image of z average out."""
    model = linear_gaussian()
    gradient, (prior, state, x) = signals(PairedGradients(), model, 0.0, 50)
    found = np.asarray(gradient.mean, float)
    # dF/dmean at the prior is -C^T R^-1 (x - C m).
    exact = -model.loading.T @ model.emission(state, prior.mean).error(x)
    np.testing.assert_allclose(found, np.broadcast_to(exact, found.shape), rtol=1e-3, atol=1e-3)
    alone = np.asarray(signals(Gradients(), model, 0.0, 50)[0].mean, float)
    assert alone.std(axis=0).min() > 10 * found.std(axis=0).max()


def test_paired_gradients_are_unbiased_and_vary_less():
    model = deep_markov()
    # Draws a twentieth as far from the mean as the prior's: what is odd in them outweighs the rest.
    (paired, _), (alone, _) = (
        signals(each, model, 6.0, 4000) for each in (PairedGradients(), Gradients())
    )
    for name in ("mean", "log_var"):
        one, other = (np.asarray(getattr(each, name), float) for each in (paired, alone))
        for i in range(one.shape[1]):
            error = np.hypot(standard_error(one[:, i]), standard_error(other[:, i]))
            assert abs(one[:, i].mean() - other[:, i].mean()) < 5 * error
    spread, alone_spread = (np.asarray(each.mean, float).std(axis=0) for each in (paired, alone))
    assert np.all(spread < 0.2 * alone_spread)


# Settings


def test_the_settings_say_which_draws_they_set():
    model = scalar_world()
    filter = FilterChoice(AVF(num_samples=8, hidden_size=4), num_samples=3).build(model, KEY)
    assert filter.inference.num_samples == 8  # of the signal
    assert filter.num_samples == 3  # of the free energy
    assert FilterChoice().num_samples == 1
    for bound in ("iwae", "fivo"):
        with pytest.raises(
            ValueError, match=f"`filter.num_samples` is 3, but the bound is {bound}"
        ):
            FilterChoice(AVF(), bound=bound, num_samples=3)


def test_the_settings_can_name_the_defaults():
    model = scalar_world()
    settings = AVF(
        update="shift", signal="paired-gradients", normalize="norm-and-log", hidden_size=None
    )
    built, default = settings.build(model, KEY), vf.Iterative(model, key=KEY)
    assert jax.tree.structure(built) == jax.tree.structure(default)
    for leaf, other in zip(jax.tree.leaves(built), jax.tree.leaves(default), strict=True):
        np.testing.assert_array_equal(leaf, other)
