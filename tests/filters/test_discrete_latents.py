"""Latents that cannot be reparameterised: particles find the exact answer, the others refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from catalog import classes
from chains import (
    XS,
    Categorical,
    Mixed,
    Posterior,
    Together,
    TwoStates,
    forward,
    parameters,
    states,
)
from refusals import refuses
from varfilter.inference import LSTMPosterior, MLPPosterior, PrecisionWeightedErrors
from varfilter.testing import ConformanceError, check_filter, check_inference, check_model
from varfilter.testing.models import INFERENCES
from worlds import KEY


@eqx.filter_jit
def filtered(model, num_particles, num_keys):
    """(log p-hat(xs), P(z_t = 1 | x_<=t)) of the bootstrap filter, with one row for each key."""
    filter = vf.ParticleFilter(vf.Prior(), num_particles)

    def one(key):
        _, found = vf.run(filter, model, XS, key)
        mean = jax.vmap(lambda posterior: posterior.mean)(found.posterior)
        return jnp.sum(found.bound), mean if mean.ndim == 1 else mean[:, 1]

    return jax.vmap(one)(jax.random.split(KEY, num_keys))


@pytest.mark.parametrize("model", [TwoStates(), states()], ids=["bernoulli", "categorical"])
def test_particles_go_to_the_forward_algorithm(model):
    evidence, beliefs = forward(parameters(model), XS)
    errors = []
    for num_particles in (16, 4096):
        found, means = filtered(model, num_particles, 64)
        # p-hat(xs) is unbiased at any number of particles: up to four standard errors.
        ratios = np.exp(np.asarray(found, np.float64) - evidence)
        assert abs(ratios.mean() - 1.0) < 4.0 * ratios.std(ddof=1) / np.sqrt(ratios.size)
        errors.append(float(np.sqrt(np.mean((np.asarray(means) - beliefs) ** 2))))
    # The error falls as 1 / sqrt(N), here by 16; a quarter of that is beyond chance.
    assert errors[1] < errors[0] / 4.0
    # A fraction of N draws has a standard deviation of at most 1 / (2 sqrt(N)) = 0.008; what the
    # weights and the resampling of earlier steps add is of that size again.
    assert errors[1] < 0.02


def test_where_gradient_descent_found_nothing():
    """One clear reading: the answer is 0.98, and q never left the prior's 0.5."""
    model = TwoStates(first=0.0, log_var=np.log(0.5))
    xs = np.array([[1.0]])
    exact = forward(parameters(model), xs)[1][-1]
    assert exact == pytest.approx(1.0 / (1.0 + np.exp(-4.0)))  # log-odds 2 x / var = 4
    posterior = vf.run(vf.ParticleFilter(vf.Prior(), 4096), model, xs, KEY)[1].posterior
    found = float(jax.tree.map(lambda leaf: leaf[0], posterior).mean)
    assert found == pytest.approx(exact, abs=0.01)  # four standard deviations of 4,096 draws: 0.009
    refuses(
        lambda: vf.run(vf.VariationalFilter(vf.GradientDescent()), model, xs, KEY),
        TypeError, "`GradientDescent`", "`TwoStates.prior`", "`Bernoulli`",
        "`ParticleFilter(Prior(), num_particles)`",
    )  # fmt: skip


REFUSALS = {
    "Iterative": lambda model: vf.Iterative(model, hidden_size=4, key=KEY),
    "Iterative, errors": lambda model: vf.Iterative(
        model, signal=PrecisionWeightedErrors(), hidden_size=4, key=KEY
    ),
    "MLPPosterior": lambda model: MLPPosterior(model, hidden_size=4, key=KEY),
    "LSTMPosterior": lambda model: LSTMPosterior(model, hidden_size=4, key=KEY),
    "GradientDescent": lambda model: vf.start(vf.VariationalFilter(vf.GradientDescent()), model),
    "GradientDescent, init": lambda model: vf.GradientDescent().init(model),
    "GradientDescent, particles": lambda model: vf.Stream(
        vf.ParticleFilter(vf.GradientDescent(), 4), model, KEY
    ),
    "Amortized": lambda model: vf.start(vf.VariationalFilter(vf.Amortized(own_network)), model),
}
MODELS = {
    "Bernoulli": TwoStates(),
    "DeclaredCategorical": states(),
    "Categorical": states(Categorical),
    "Bernoulli in a tree": Mixed(),
    "Bernoulli in a joint": Together(),
}


def own_network(prior, state, observation):
    return prior


@pytest.mark.parametrize("method", REFUSALS)
def test_variational_inferences_refuse(method):
    # Each of them one model, and each model once: which families are found is asked below.
    refuses(
        lambda: REFUSALS[method](TwoStates()),
        TypeError, f"`{method.split(',')[0]}` needs", "`Bernoulli`", "`ParticleFilter(Prior()",
    )  # fmt: skip


@pytest.mark.parametrize("latent", MODELS)
def test_every_such_latent_is_refused(latent):
    model = MODELS[latent]
    refuses(
        lambda: vf.start(vf.VariationalFilter(vf.GradientDescent()), model),
        TypeError, f"`{type(model).__name__}.prior` returns `{latent.split()[0]}`,",
    )  # fmt: skip


def test_an_inference_that_was_built_for_another_model():
    class Continuous(TwoStates):
        def prior(self, state):
            return vf.Normal(state, jnp.zeros(()))

    inference = vf.Iterative(Continuous(), hidden_size=4, key=KEY)
    refuses(
        lambda: vf.start(vf.VariationalFilter(inference), TwoStates()),
        TypeError, "`Iterative` needs", "`TwoStates.prior`",
    )  # fmt: skip


def test_recurrent_refuses():
    class Memory(eqx.Module):
        def init(self):
            return jnp.zeros(1)

        def __call__(self, memory, prior, state, observation):
            return memory, prior

    filter = vf.VariationalFilter(vf.Recurrent(Memory()))
    refuses(lambda: vf.start(filter, TwoStates()), TypeError, "`Recurrent` needs")


def test_an_inference_of_ones_own_is_welcome():
    model = TwoStates()
    xs = XS[:1]
    _, found = vf.run(vf.ParticleFilter(Posterior(), 3), model, xs, KEY)
    # By the optimal proposal each weight is p(x_1) itself: no variance, whatever is drawn.
    exact = forward(parameters(model), xs)[0]
    assert float(found.bound[0]) == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(TwoStates(), marks=pytest.mark.slow),  # a part of the mixed one
        states(),
        Mixed(),
        pytest.param(Together(), marks=pytest.mark.slow),
    ],
)
def test_discrete_models_conform(model):
    note = check_model(model, KEY)[-1]
    assert note.check == "inferences"
    assert note.note.startswith("Prior (the draws of `")
    check_filter(vf.ParticleFilter(vf.Prior(), 4), model, KEY)


def test_check_model_says_which_inferences_fit():
    class Continuous(TwoStates):
        def prior(self, state):
            return vf.Normal(state, jnp.zeros(()))

        def emission(self, state, z):
            return vf.Normal(z[None], self.log_var[None])

        def advance(self, state, z, features):
            return z

    note = check_model(Continuous(), KEY)[-1].note
    assert note == "Iterative, GradientDescent, Amortized, Recurrent, Prior"
    assert set(INFERENCES) == classes(vf.AbstractInference)


def test_check_model_finds_a_family_that_does_not_say_so():
    with pytest.raises(ConformanceError, match=r"^\[reparameterisable\] `OneHot`.*`Categorical`"):
        check_model(states(Categorical), KEY)


def test_check_inference_names_the_reason():
    with pytest.raises(ConformanceError, match=r"^\[infer\] .*cannot be reparameterised"):
        check_inference(vf.GradientDescent(), TwoStates(), KEY)
    assert check_inference(vf.Prior(), TwoStates(), KEY)
