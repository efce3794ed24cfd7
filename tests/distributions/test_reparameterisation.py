"""What families say of their draws holds: the mean of gradients is the gradient of the mean."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from varfilter import distributions
from varfilter.distributions import (
    Autoregressive,
    Bernoulli,
    Categorical,
    DiscretizedNormal,
    Exponentiated,
    Gaussian,
    Joint,
    Mixture,
    NegativeBinomial,
    Normal,
    PaperDiscretizedNormal,
    Particles,
    Rectified,
    StudentT,
    ZeroInflated,
    is_reparameterisable,
    not_reparameterisable,
)
from worlds import KEY

MEAN, LOG_VAR = jnp.array([0.3, -0.7]), jnp.array([-0.5, 0.4])
NORMAL, BERNOULLI = Normal(MEAN, LOG_VAR), Bernoulli(MEAN)
SMOOTH = {
    "normal": NORMAL,
    "gaussian": Gaussian(MEAN, jnp.array([[0.1, 0.0], [0.4, -0.3]])),
    "joint": Joint((NORMAL, NORMAL), ((0, 2), (1, 3))),
    "exponentiated": Exponentiated(NORMAL, (True, False)),
    "student": StudentT(MEAN, LOG_VAR, jnp.array([1.0, 2.0])),
    "autoregressive": Autoregressive(NORMAL, jnp.array([0.5]), jnp.array([0.2])),
    "joint of a joint": Joint((Joint((NORMAL,), ((1, 0),)),), ((0, 1),)),
}
DISCRETE = {
    "bernoulli": BERNOULLI,
    "levels": DiscretizedNormal(MEAN, LOG_VAR, 0.5, -3.0, 3.0),
    "zeros": ZeroInflated(MEAN, MEAN, LOG_VAR),
    "events": NegativeBinomial(MEAN + 1.0, LOG_VAR, (1.0, 1.0), (0.0, 0.0)),
    "particles": Particles(jnp.array([[0.0], [1.0]]), jnp.array([0.2, -0.3])),
    "mixture": Mixture(
        Normal(jnp.array([[0.0], [3.0]]), jnp.zeros((2, 1))), jnp.array([0.2, -0.3])
    ),
    "joint": Joint((NORMAL, BERNOULLI), ((0, 2), (1, 3))),
}


def both_gradients(distribution):
    """(mean over draws of d sum(z) / dθ, its standard error, d sum(mean) / dθ) as vectors."""
    parameters, rest = eqx.partition(distribution, eqx.is_inexact_array)

    def drawn(parameters, key):
        return jnp.sum(eqx.combine(parameters, rest).sample(key))

    def expected(parameters):
        return jnp.sum(eqx.combine(parameters, rest).mean)

    @jax.jit
    def gradients(keys):
        each = jax.vmap(lambda key: ravel_pytree(jax.grad(drawn)(parameters, key))[0])(keys)
        return each, ravel_pytree(jax.grad(expected)(parameters))[0]

    each, want = map(np.asarray, gradients(jax.random.split(KEY, 4096)))
    return each.mean(axis=0), each.std(axis=0) / np.sqrt(len(each)), want


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_of_draws_is_that_of_the_mean(name):
    assert is_reparameterisable(SMOOTH[name])
    assert not_reparameterisable(SMOOTH[name]) == []
    got, standard_error, want = both_gradients(SMOOTH[name])
    # Four standard errors, and a few roundings where there is no variance at all.
    np.testing.assert_array_less(np.abs(got - want), 4.0 * standard_error + 1e-5)


@pytest.mark.parametrize("name", DISCRETE)
def test_where_it_is_not_the_family_says_so(name):
    assert not is_reparameterisable(DISCRETE[name])
    assert not_reparameterisable(DISCRETE[name])
    got, standard_error, want = both_gradients(DISCRETE[name])
    assert np.any(np.abs(got - want) > 10.0 * standard_error + 0.05)


def test_all_of_a_tree_counts():
    assert is_reparameterisable({"a": NORMAL, "b": (SMOOTH["gaussian"],)})
    assert not is_reparameterisable({"a": NORMAL, "b": (BERNOULLI,)})
    found = not_reparameterisable({"a": NORMAL, "b": DISCRETE["joint"]})
    assert [type(each) for each in found] == [Bernoulli]


def test_shapes_are_enough():
    shapes = eqx.filter_eval_shape(lambda: (NORMAL, BERNOULLI))
    assert [type(each) for each in not_reparameterisable(shapes)] == [Bernoulli]


class Rounded(Normal):
    """A family that inherits a claim it does not keep."""

    def sample(self, key):
        return jnp.round(super().sample(key))


class StraightThrough(Bernoulli):
    """Draws of 0 and 1 with the gradient of their mean: somebody's own, deliberate claim."""

    is_reparameterisable = True

    def sample(self, key):
        return self.mean + jax.lax.stop_gradient(super().sample(key) - self.mean)


def test_a_claim_is_held_against_the_draws():
    rounded = Rounded(MEAN, LOG_VAR)
    assert is_reparameterisable(rounded)
    assert not_reparameterisable((NORMAL, rounded)) == [rounded]
    assert not_reparameterisable(StraightThrough(MEAN)) == []


class FromElsewhere(Normal):
    """Draws that another program makes: JAX cannot differentiate them."""

    def sample(self, key):
        return jax.pure_callback(lambda mean: mean, self.mean, self.mean)


class Broken(Normal):
    def sample(self, key):
        raise RuntimeError("no samples left")


def test_draws_without_any_derivative():
    made = FromElsewhere(MEAN, LOG_VAR)
    assert not_reparameterisable(made) == [made]
    with pytest.raises(RuntimeError, match="no samples left"):
        not_reparameterisable(Broken(MEAN, LOG_VAR))


def test_every_family_is_listed():
    listed = {type(each) for each in (*SMOOTH.values(), *DISCRETE.values())}
    families = {
        each
        for each in vars(distributions).values()
        if isinstance(each, type) and each is not distributions.AbstractDistribution
    }
    # The levels of a column add up to one whatever is drawn, and what lies beyond a bound has a
    # gradient of its own, zero: by the sum of a draw neither can be told from a smooth one.
    assert families - listed == {PaperDiscretizedNormal, Categorical, Rectified}
    assert not PaperDiscretizedNormal.is_reparameterisable
