"""A model that breaks its contract is refused at the border, by the name of the function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from jaxtyping import Array

import varfilter as vf
from refusals import refuses
from varfilter.distributions import AbstractDistribution
from varfilter.inference import MLPPosterior
from worlds import KEY

pytestmark = pytest.mark.usefixtures("as_users_run_it")


class Walk(vf.AbstractModel):
    """A random walk in two dimensions; the tests below break one function each."""

    log_var: Array = eqx.field(default_factory=lambda: jnp.zeros(2))

    def init(self, x0=None):
        return jnp.zeros(2)

    def embed(self, x):
        return None

    def prior(self, state):
        return vf.Normal(state, self.log_var)

    def emission(self, state, z):
        return vf.Normal(z, self.log_var)

    def advance(self, state, z, features):
        return z


class VectorScore(AbstractDistribution):
    """A distribution whose log-probability is not summed."""

    mean: Array

    @property
    def variance(self):
        return jnp.ones_like(self.mean)

    @property
    def shape(self):
        return self.mean.shape

    def sample(self, key):
        return self.mean

    def log_prob(self, x):
        return -((x - self.mean) ** 2)


class DrawsRows(VectorScore):
    """A distribution whose draws have one axis more than its mean."""

    def sample(self, key):
        return self.mean[None]

    def log_prob(self, x):
        return -jnp.sum((x - self.mean) ** 2)


FUNCTIONS = ("init", "embed", "prior", "emission", "advance")


def broken(**functions):
    """A `Walk` with some of its functions replaced."""
    return type("Broken", (Walk,), functions)()


CASES = {
    "prior is an array": (
        {"prior": lambda self, state: state},
        "`Broken.prior`", "distribution", "float32[2]", "`Normal(mean, log_var)`",
    ),
    "prior is nothing": (
        {"prior": lambda self, state: None}, "`Broken.prior`", "distribution", "`None`",
    ),
    "prior is a pair of arrays": (
        {"prior": lambda self, state: (state, self.log_var)},
        "`Broken.prior`", "got a `tuple` with an array `float32[2]` at `[0]`", "distribution",
    ),
    "prior is a list of arrays": (
        {"prior": lambda self, state: [state]},
        "`Broken.prior`", "got a `list` with an array `float32[2]` at `[0]`",
    ),
    "prior is a dictionary of which one is an array": (
        {"prior": lambda self, state: {"a": vf.Normal(state, state), "b": state}},
        "`Broken.prior`", "got a `dict` with an array `float32[2]` at `['b']`",
    ),
    "prior is a pair of numbers": (
        {"prior": lambda self, state: (0.0, 1.0)},
        "`Broken.prior`", "got a `tuple` with `0.0` at `[0]`",
    ),
    "prior is an empty tuple": (
        {"prior": lambda self, state: ()}, "`Broken.prior`", "got a `tuple` that holds none",
    ),
    "prior is a class": (
        {"prior": lambda self, state: vf.Normal}, "`Broken.prior`", "the class `Normal`",
    ),
    "prior draws another shape": (
        {"prior": lambda self, state: DrawsRows(state)},
        "A draw of `Broken.prior(state)`", "got array float32[1, 2], wanted float32[2]",
    ),
    "emission is a pair of arrays": (
        {"emission": lambda self, state, z: (z, z)},
        "`Broken.emission`", "got a `tuple` with an array `float32[2]` at `[0]`",
    ),
    "prior of half the parameters": (
        {"prior": lambda self, state: vf.Normal(state, self.log_var[:1])},
        "`Broken.prior(state)` failed", "`log_var`", "(2,)", "(1,)",
    ),
    "prior branches on a value": (
        {"prior": lambda self, state: vf.Normal(state, state) if state[0] > 0 else None},
        "`Broken.prior(state)` failed", "TracerBoolConversionError",
    ),
    "prior without a scalar density": (
        {"prior": lambda self, state: VectorScore(state)},
        "`Broken.prior(state).log_prob(z)`", "one number", "float32[2]",
    ),
    "emission is an array": (
        {"emission": lambda self, state, z: z}, "`Broken.emission`", "distribution", "float32[2]",
    ),
    "emission is two": (
        {"emission": lambda self, state, z: (vf.Bernoulli(z), vf.Bernoulli(z))},
        "`Broken.emission`", "one distribution", "`tuple`",
    ),
    "emission expects another latent": (
        {"emission": lambda self, state, z: vf.Bernoulli(jnp.ones((2, 3)) @ z)},
        "`Broken.emission(state, z)` failed", "(3,)", "(2,)",
    ),
    "emission without a scalar density": (
        {"emission": lambda self, state, z: VectorScore(z)},
        "`Broken.emission(state, z).log_prob(x)`", "one number", "Sum over elements",
    ),
    "embed expects another x": (
        {"embed": lambda self, x: jnp.ones((2, 5)) @ x}, "`Broken.embed(x)` failed", "(5,)",
    ),
    "init is a number": (
        {"init": lambda self, x0=None: 0.0}, "`Broken.init(None)`", "`0.0`", "`jnp.asarray(...)`",
    ),
    "init takes no x0": (
        {"init": lambda self: jnp.zeros(2)}, "`Broken.init(None)` failed", "TypeError",
    ),
    "init fails without x0": (
        {"init": lambda self, x0=None: x0 + 1.0}, "`Broken.init(None)` failed", "NoneType",
    ),
    "init of another shape with x0": (
        {"init": lambda self, x0=None: jnp.zeros(2 if x0 is None else 3)},
        "`Broken.init(x0)`", "float32[3]", "float32[2]",
    ),
    "advance grows": (
        {"advance": lambda self, state, z, features: jnp.concatenate([state, z])},
        "`Broken.advance(state, z, features)`", "float32[4]", "float32[2]", "shapes",
    ),
    "advance changes the dtype": (
        {"advance": lambda self, state, z, features: z > 0},
        "`Broken.advance(state, z, features)`", "bool[2]", "float32[2]", "dtypes",
    ),
    "advance adds": (
        {
            "init": lambda self, x0=None: {"z": jnp.zeros(2)},
            "prior": lambda self, state: vf.Normal(state["z"], self.log_var),
            "advance": lambda self, state, z, features: {"z": z, "t": z},
        },
        "`Broken.advance(state, z, features)`", "an extra `['t']`",
    ),
    "advance forgets": (
        {"advance": lambda self, state, z, features: None},
        "`Broken.advance(state, z, features)`", "got no array",
    ),
    "advance returns a tuple": (
        {
            "init": lambda self, x0=None: [jnp.zeros(2)],
            "prior": lambda self, state: vf.Normal(state[0], self.log_var),
            "advance": lambda self, state, z, features: (z,),
        },
        "`Broken.advance(state, z, features)`", "PyTreeDef",
    ),
    "advance needs features that embed does not give": (
        {"advance": lambda self, state, z, features: z + features},
        "`Broken.advance(state, z, features)` failed", "NoneType",
    ),
}  # fmt: skip

DOORS = {
    "start": lambda model: vf.start(vf.VariationalFilter(vf.Prior()), model),
    "run": lambda model: vf.run(vf.ParticleFilter(vf.Prior(), 3), model, jnp.zeros((4, 2)), KEY),
    "generate": lambda model: vf.generate(model, 3, KEY),
    "Stream": lambda model: vf.Stream(vf.VariationalFilter(vf.Prior()), model, KEY),
    "Iterative": lambda model: vf.Iterative(model, hidden_size=4, key=KEY),
    "MLPPosterior": lambda model: MLPPosterior(model, hidden_size=4, key=KEY),
    "learner": lambda model: vf.EndToEnd(theta=optax.sgd(0.1), phi=None).init(
        model, vf.VariationalFilter(vf.Prior())
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_broken_function(case):
    functions, *words = CASES[case]
    refuses(lambda: DOORS["start"](broken(**functions)), TypeError, *words)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_checks(door):
    model = broken(advance=lambda self, state, z, features: jnp.concatenate([state, z]))
    words = ("`Broken.advance(state, z, features)`", "float32[4]")
    refuses(lambda: DOORS[door](model), TypeError, *words)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_missing_function(function):
    functions = {name: vars(Walk)[name] for name in FUNCTIONS if name != function}
    incomplete = type("Incomplete", (vf.AbstractModel,), functions)
    with pytest.raises(TypeError, match=rf"Incomplete.*'?{function}'?"):
        incomplete()


def test_the_cause_is_kept():
    def prior(self, state):
        raise RuntimeError("no such file: weights.npz")

    with pytest.raises(TypeError, match="no such file") as caught:
        DOORS["start"](broken(prior=prior))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_models_are_checked_once_for_all_parameters():
    calls = []

    def prior(self, state):
        calls.append(1)
        return vf.Normal(state, self.log_var)

    model = broken(prior=prior)
    DOORS["start"](model)
    checked = len(calls)
    assert checked > 0
    for value in (1.0, 2.0, 3.0):
        DOORS["start"](eqx.tree_at(lambda m: m.log_var, model, jnp.full(2, value, jnp.float32)))
    assert len(calls) == checked
    # Another shape is another model.
    refuses(
        lambda: DOORS["start"](eqx.tree_at(lambda m: m.log_var, model, jnp.zeros(3))),
        TypeError, "`Broken.prior(state)` failed", "`log_var`",
    )  # fmt: skip


def test_models_that_cannot_be_hashed_are_checked_each_time():
    class Listed(Walk):
        scale: list = eqx.field(static=True, default_factory=lambda: [1.0])

    for _ in range(2):
        assert int(DOORS["start"](Listed()).t) == 0


def test_a_filter_that_changes_its_carry():
    class Growing(vf.AbstractFilter):
        def init(self, model, x0=None):
            return jnp.zeros(1)

        def step(self, model, carry, x, key, *, kl_weight=1.0):
            prior = model.prior(model.init(None))
            return jnp.zeros(2), vf.Filtered(prior, prior, prior, jnp.zeros(()))

        def draw(self, model, carry, key):
            return model.init(None)

    refuses(lambda: vf.start(Growing(), Walk()), TypeError, "`Growing.step`", "float32[2]")


def test_an_inference_that_returns_no_posterior():
    network = vf.Amortized(lambda prior, state, observation: observation.x)
    refuses(
        lambda: vf.start(vf.VariationalFilter(network), Walk()),
        TypeError, "`VariationalFilter(Amortized)`", "`Walk`",
    )  # fmt: skip


def test_hierarchies_of_latents_are_welcome():
    class Two(Walk):
        def prior(self, state):
            return {"slow": vf.Normal(state, self.log_var), "fast": vf.Bernoulli(state)}

        def emission(self, state, z):
            return vf.Normal(z["slow"] + z["fast"], self.log_var)

        def advance(self, state, z, features):
            return z["slow"]

    filtered = vf.run(vf.ParticleFilter(vf.Prior(), 8), Two(), jnp.zeros((3, 2)), KEY)[1]
    assert bool(jnp.isfinite(filtered.bound).all())
    shapes = jax.tree.map(jnp.shape, filtered.posterior.values)
    assert shapes == {"slow": (3, 8, 2), "fast": (3, 8, 2)}


class Half(Walk):
    """A model that holds float32 where the rest of a program is in float64."""

    log_var: Array = eqx.field(default_factory=lambda: jnp.zeros(2, jnp.float32))
    scale: Array = eqx.field(default_factory=lambda: jnp.zeros(2, jnp.float32))

    def init(self, x0=None):
        return jnp.zeros_like(self.log_var)

    def prior(self, state):
        return vf.Normal(state, self.scale)

    def emission(self, state, z):
        return vf.Normal(z, jnp.zeros(2))


@pytest.fixture
def as_in_float64():
    # Under the strict promotion of these tests no two dtypes meet; users have the standard one.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.usefixtures("as_in_float64")
class TestMixedPrecision:
    """A model is told which of its functions returns which dtype; no filter takes the blame."""

    def test_one_prior_of_two_dtypes(self):
        model = Half(scale=jnp.zeros(2))
        words = (
            "`Half.prior(state)`", "`mean` float32 and `log_var` float64",
            "got array float64[2], wanted float32[2]", "`jnp.result_type(float)`",
        )  # fmt: skip
        refuses(lambda: DOORS["start"](model), TypeError, *words)
        refuses(lambda: DOORS["generate"](model), TypeError, *words)

    def test_float32_weights_beside_a_float64_observation(self):
        class Sees(Half):
            def embed(self, x):
                return x

            def advance(self, state, z, features):
                return z + features

        refuses(
            lambda: DOORS["start"](Sees()),
            TypeError, "`Sees.advance(state, z, features)`", "float64[2], wanted float32[2]",
            "`jnp.result_type(float)`",
        )  # fmt: skip

    @pytest.mark.parametrize("network", ["Iterative", "Amortized"])
    def test_networks_in_another_precision(self, network):
        model = Half()
        build = {
            "Iterative": lambda: vf.Iterative(model, hidden_size=4, key=KEY),
            "Amortized": lambda: vf.Amortized(MLPPosterior(model, hidden_size=4, key=KEY)),
        }
        filter = vf.VariationalFilter(build[network]())
        refuses(
            lambda: vf.start(filter, model),
            TypeError, "`Half` mixes dtypes: `Half.init` returns float32, `Half.prior` returns"
            " float32, `Half.emission` returns `mean` float32 and `log_var` float64, where x_t is"
            " float64.", "`jnp.result_type(float)`", f"`VariationalFilter({network})",
        )  # fmt: skip

    def test_what_works_in_two_precisions_is_left_alone(self):
        for inference in (vf.Prior(), vf.GradientDescent(num_iterations=2)):
            assert vf.start(vf.VariationalFilter(inference), Half()).carry.state.dtype == "float32"

    def test_a_model_of_one_dtype(self):
        model = Half(log_var=jnp.zeros(2), scale=jnp.zeros(2))
        filter = vf.VariationalFilter(vf.Iterative(model, hidden_size=4, key=KEY))
        assert vf.start(filter, model).carry.state.dtype == "float64"

    def test_a_network_that_does_not_fit_is_still_to_blame(self):
        model = Half(log_var=jnp.zeros(2), scale=jnp.zeros(2))
        network = vf.Amortized(lambda prior, state, observation: observation.x)
        refuses(
            lambda: vf.start(vf.VariationalFilter(network), model),
            TypeError, "`VariationalFilter(Amortized)` does not fit `Half`",
        )  # fmt: skip
