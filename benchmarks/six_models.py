"""Six models to hold inferences against each other: four that are known, two that were learned.

Every known one sees its latents through noise of one unit, so that free energies, which depend on
the units of x, can be compared. The two learned ones have parameters that `prepare` finds by the
hand-made baseline, end to end: an inference that is not among those compared.
"""

import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

import varfilter as vf
from varfilter import distributions
from varfilter.data import Dataset, Family, Ragged, RandomWindows, read_rolls, read_table
from varfilter.experiments.models import SRNNSizes, TableSizes
from varfilter.inference import SRNNPosterior
from varfilter.model import AbstractModel

SENSORS = Path(__file__).parent.parent / "examples" / "data" / "sensors.csv"
SPLITS = ("train", "valid", "test")
NUM_TRAIN, NUM_TEST, NUM_STEPS = 512, 128, 61
NUM_LEARNED_TEST = 64


class Volatility(AbstractModel):
    """z_t = 0.95 z_{t-1} + 0.3 noise, x_t = exp(z_t / 2) noise: one latent, seen by its spread."""

    weight: Array = eqx.field(default_factory=lambda: jnp.array([0.95]))
    log_var: Array = eqx.field(default_factory=lambda: 2.0 * jnp.log(jnp.array([0.3])))

    def init(self, x0=None):
        return vf.Normal(jnp.zeros(1), self.log_var - jnp.log(1.0 - self.weight**2))

    def embed(self, x):
        return None

    def prior(self, state):
        return state

    def emission(self, state, z):
        return vf.Normal(jnp.zeros(1), z)

    def advance(self, state, z, features):
        return vf.Normal(self.weight * z, self.log_var)


class Pendulum(AbstractModel):
    """The pendulum of the README: an angle and a speed, seen by the sine of the angle."""

    log_noise: Array = eqx.field(default_factory=lambda: jnp.full((2,), -4.0))
    length: Array = eqx.field(default_factory=lambda: jnp.exp(jnp.array([1.5])))

    def init(self, x0=None):
        return vf.Normal(jnp.zeros(2), jnp.zeros(2))

    def embed(self, x):
        return None

    def prior(self, state):
        return state

    def emission(self, state, z):
        return vf.Normal(self.length * jnp.sin(z[:1]), jnp.zeros(1))

    def advance(self, state, z, features):
        angle, speed = z
        mean = jnp.stack([angle + 0.1 * speed, speed - 0.98 * jnp.sin(angle)])
        return vf.Normal(mean, self.log_noise)


class Lorenz(AbstractModel):
    """The chaotic system of Lorenz (1963): latents of some tens of units, all seen in noise.

    One step is 0.05 of a time unit by the classical Runge-Kutta rule, and a push of one unit.
    """

    log_noise: Array = eqx.field(default_factory=lambda: jnp.zeros(3))

    def init(self, x0=None):
        place = jnp.array([0.0, 0.0, 25.0]) if x0 is None else x0
        return vf.Normal(place, jnp.full((3,), 4.0 if x0 is None else 2.0))

    def embed(self, x):
        return None

    def prior(self, state):
        return state

    def emission(self, state, z):
        return vf.Normal(z, jnp.zeros(3))

    def advance(self, state, z, features):
        def drift(z):
            a, b, c = z
            return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c])

        dt = 0.05
        k1 = drift(z)
        k2 = drift(z + 0.5 * dt * k1)
        k3 = drift(z + 0.5 * dt * k2)
        k4 = drift(z + dt * k3)
        return vf.Normal(z + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), self.log_noise)


def tracker() -> vf.LinearGaussian:
    """The particle on a spring of `varfilter demo`, observed in units of the noise."""
    dt, spring, damping, noise = 0.3, 0.6, 0.3, 0.1
    one_axis = np.array([[1.0, dt], [-spring * dt, 1.0 - damping * dt]])
    transition = np.kron(one_axis, np.eye(2))
    push = np.kron(np.diag([0.3, 0.1]), np.eye(2))
    stationary = push
    for _ in range(500):
        stationary = transition @ stationary @ transition.T + push
    return vf.LinearGaussian(
        transition=transition,
        process_covariance=push,
        loading=np.eye(2, 4) / noise**0.5,
        noise_covariance=np.eye(2),
        initial_covariance=stationary,
    )


KNOWN: dict[str, Callable[[], AbstractModel]] = {
    "volatility": Volatility,
    "pendulum": Pendulum,
    "lorenz": Lorenz,
    "tracker": tracker,
}
# As the experiment `table` has them; and music at a size that one core learns in minutes.
LEARNED = {
    "table": TableSizes(),
    "jsb": SRNNSizes(
        latent_size=16, recurrent_size=64, prior_size=64, decoder_size=64, num_decoder_layers=1
    ),
}
NAMES = (*KNOWN, *LEARNED)


@dataclass(frozen=True)
class World:
    """A model, how it was before it was learned, its data, and the steps of a training window."""

    model: AbstractModel
    untrained: Callable[[PRNGKeyArray], AbstractModel]
    dataset: Dataset
    num_steps: int


def world(name: str, folder: Path, *, quick: bool = False) -> World:
    """The model of that name with its data; those that were learned come from `folder`."""
    if name in LEARNED:
        path = folder / f"{name}.eqx"
        if not path.is_file():
            raise FileNotFoundError(f"There is no {path}. Run with `--prepare` first.")
        dataset = _stored(name, folder)
        untrained = functools.partial(LEARNED[name].build, dataset)
        model = eqx.tree_deserialise_leaves(path, untrained(jax.random.key(0)))
        return World(model, untrained, dataset, 25)
    model = KNOWN[name]()
    key_train, key_test = jax.random.split(jax.random.key(1))
    num_train, num_test, num_steps = (16, 4, 11) if quick else (NUM_TRAIN, NUM_TEST, NUM_STEPS)

    @eqx.filter_jit
    def sequences(key, count):
        return jax.vmap(lambda k: vf.generate(model, num_steps, k)[0])(jax.random.split(key, count))

    parts = [
        Ragged.of(list(np.asarray(sequences(key, count))))
        for key, count in ((key_train, num_train), (key_test, num_test))
    ]
    dataset = Dataset(name, *parts, parts[1], Family(vf.Normal))
    return World(model, lambda key: model, dataset, min(num_steps, 31))


def prepare(folder: Path, music: Path, num_updates: int) -> None:
    """Read the table and the songs, learn their models end to end, and put all into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in LEARNED:
        read = read_table(SENSORS) if name == "table" else read_rolls(music / "jsb_chorales.npz")
        _store(name, read, folder)
        dataset = _stored(name, folder)
        key_model, key_q, key_fit = jax.random.split(jax.random.key(0), 3)
        model = LEARNED[name].build(dataset, key_model)
        posterior = SRNNPosterior(model, hidden_size=64, key=key_q)
        rate = optax.cosine_decay_schedule(3e-3, num_updates)
        adam = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(rate))
        learner = vf.EndToEnd(theta=adam, phi=adam)
        state = learner.init(model, vf.VariationalFilter(vf.Amortized(posterior)))
        windows = RandomWindows(dataset, 25, 32)
        best, kept = np.inf, state
        for fitted in vf.fit(
            learner, state, windows, key_fit,
            num_updates=num_updates, updates_per_dispatch=max(1, num_updates // 10),
        ):  # fmt: skip
            state = fitted.state
            nats = vf.evaluate(state.filter, state.model, dataset, key_fit, split="valid").nats
            if nats < best:
                best, kept = nats, state
            print(f"{name}: update {fitted.num_updates}, {nats:.3f} nats held out", flush=True)
        eqx.tree_serialise_leaves(folder / f"{name}.eqx", kept.model)


def _store(name: str, dataset: Dataset, folder: Path) -> None:
    """Write a data set in the model's units, as arrays that NumPy alone can read."""
    families = dataset.family if isinstance(dataset.family, tuple) else (dataset.family,)
    described = [asdict(f) | {"distribution": f.distribution.__name__} for f in families]
    arrays = {"families": np.array(json.dumps(described))}
    for split in SPLITS:
        part = dataset.split(split)
        values = np.asarray(dataset.scaling(part.values), np.float32)
        arrays |= {f"{split}_values": values, f"{split}_lengths": part.lengths}
    np.savez_compressed(folder / f"{name}.npz", **arrays)


def _stored(name: str, folder: Path) -> Dataset:
    with np.load(folder / f"{name}.npz") as arrays:
        train, valid, test = (
            Ragged(arrays[f"{split}_values"], arrays[f"{split}_lengths"]) for split in SPLITS
        )
        families = tuple(
            Family(**f | {"distribution": getattr(distributions, f["distribution"])})
            for f in json.loads(str(arrays["families"]))
        )
    # In one of the table's test runs a sensor fails, and whatever is made of those few readings
    # would decide the comparison.
    held_out = valid if name == "table" else test
    # The descent takes its time: the beginnings of some sequences are enough to compare.
    test = Ragged.of([sequence[:NUM_STEPS] for sequence in held_out[:NUM_LEARNED_TEST]])
    return Dataset(name, train, valid, test, families if name == "table" else families[0])
