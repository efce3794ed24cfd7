"""The classic filters beside other people's, on the same numbers: ratios of one run.

    pip install 'varfilter[benchmark]' && pip install --no-deps particles
    python benchmarks/classic.py [--quick] [--json FILE] [--only SECTION ...]

- `kalman`: the evidence and the filtered means of complete sequences, beside dynamax;
- `fit`: one Adam step on the evidence of 16 sequences, beside dynamax;
- `particles`: the bootstrap filter of stochastic volatility, beside cuthbert, particles, and a
  scan written by hand;
- `streams`: one `Stream.push`, beside filterpy and a jitted step written by hand, which keep what
  they do (posterior and evidence; of particles the evidence); and how many steps a second 1,024
  streams take together. Each push computes where it is called
  (`jax_cpu_enable_async_dispatch=False`, for all contestants), unless `--async`;
- `memory`: the most memory of a process that runs 10,000 particles over 10,000 steps.

Contestants take turns; a ratio is the median of the rounds' own ratios, beside it that of the
shortest times, and their results are compared before they are timed. `--quick` shrinks every size,
to see that it works.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dispatch  # noqa: F401  (before anything is computed)
import jax
import jax.numpy as jnp
import numpy as np
import optax
import subjects
from core import machine
from measure import Race, compiled
from rich.console import Console
from rich.table import Table
from textbook import StochasticVolatility

import varfilter as vf

SECTIONS = ("kalman", "fit", "particles", "streams", "memory")
VOLATILITY = StochasticVolatility(0.95, jnp.log(0.35), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--async", action="store_true", help="jax's own way to dispatch a push")
    parser.add_argument("--run-of", help=argparse.SUPPRESS)  # a process of `memory`
    arguments = parser.parse_args()
    if arguments.run_of:
        run_many_particles(arguments.run_of, quick=arguments.quick)
        return
    console = Console()
    results: dict[str, Any] = {"machine": machine(), "quick": arguments.quick}
    console.print(" | ".join(f"{name}: {value}" for name, value in results["machine"].items()))
    for name in arguments.only:
        try:
            with console.status(f"measuring {name} ..."):
                results[name] = globals()[name](quick=arguments.quick)
        except ImportError as error:
            raise SystemExit(
                f"`{error.name}` cannot be imported ({error}); this benchmark compares with it."
                " Run: pip install 'varfilter[benchmark]'"
            ) from None
        table = Table(*results[name][0], title=name, title_justify="left")
        for row in results[name]:
            table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
        console.print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
        console.print(f"Wrote {arguments.json}.")


# Kalman filters


def kalman(*, quick: bool) -> list[dict[str, Any]]:
    """A row for each size of model and batch."""
    from dynamax.linear_gaussian_ssm import lgssm_filter

    num_steps = 8 if quick else 1000
    rows = []
    for latent, size, batch in [(4, 2, 1), (4, 2, 64), (32, 16, 1), (32, 16, 64)]:
        batch = min(batch, 3) if quick else batch
        parameters, xs = linear_world(latent, size, batch, num_steps)
        model, params = ours_and_dynamax(parameters)[:2]

        def ours(model: vf.LinearGaussian, xs: jax.Array) -> tuple[jax.Array, jax.Array]:
            filtered = vf.run(vf.KalmanFilter(), model, xs, ahead=True)[1]
            return jnp.sum(filtered.bound), filtered.posterior.mean

        def theirs(params: Any, xs: jax.Array) -> tuple[jax.Array, jax.Array]:
            filtered = lgssm_filter(params, xs)
            return filtered.marginal_loglik, filtered.filtered_means

        each = (None, 0)
        calls = {
            "ours": compiled(jax.vmap(ours, each), model, xs)[0],
            "dynamax": compiled(jax.vmap(theirs, each), params, xs)[0],
        }
        require_agreement(calls["ours"](), calls["dynamax"]())
        race = Race(calls, num_rounds=3 if quick else 15)
        name = f"state {latent}, observed {size}, T={num_steps}, batch {batch}"
        rows.append(row(name, race, "ours", "dynamax"))
    return rows


def fit(*, quick: bool) -> list[dict[str, Any]]:
    """One row: an Adam step on the mean evidence of a batch, in all parameters."""
    from dynamax.parameters import from_unconstrained, to_unconstrained

    num_steps, batch = (8, 3) if quick else (500, 16)
    parameters, xs = linear_world(4, 2, batch, num_steps)
    model, params, ssm, properties = ours_and_dynamax(parameters)
    learner = vf.EndToEnd(theta=optax.adam(1e-3), phi=None, complete=True)
    state = learner.init(model, vf.KalmanFilter())
    optimizer = optax.adam(1e-3)
    free = to_unconstrained(params, properties)

    def loss(free: Any) -> jax.Array:
        params = from_unconstrained(free, properties)
        evidence = jax.vmap(lambda each: ssm.marginal_log_prob(params, each))(xs)
        return -jnp.mean(evidence) / num_steps

    @jax.jit
    def step(free: Any, optimizer_state: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(free)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state)
        return optax.apply_updates(free, updates), optimizer_state, value

    first = optimizer.init(free)
    values = learner.update(state, xs, subjects.KEY)[1].free_energy, step(free, first)[2]
    np.testing.assert_allclose(*values, rtol=1e-4)  # float32, another order of operations
    calls = {
        "ours": lambda: jax.block_until_ready(
            learner.update(state, xs, subjects.KEY)[1].free_energy
        ),
        "dynamax": lambda: jax.block_until_ready(step(free, first)),
    }
    race = Race(calls, num_rounds=3 if quick else 15)
    return [row(f"a gradient step, T={num_steps}, {batch} sequences", race, "ours", "dynamax")]


def linear_world(
    latent: int, size: int, batch: int, num_steps: int
) -> tuple[dict[str, np.ndarray], jax.Array]:
    """A rotation that forgets, seen through noise; and sequences of it."""
    random = np.random.default_rng(latent)
    rotation, _ = np.linalg.qr(random.normal(size=(latent, latent)))
    parameters = {
        "transition": 0.95 * rotation,
        "process_covariance": 0.3 * np.eye(latent),
        "loading": random.normal(size=(size, latent)) / np.sqrt(latent),
        "noise_covariance": 0.5 * np.eye(size),
        "initial_covariance": np.eye(latent),
    }
    model = vf.LinearGaussian(**parameters)
    keys = jax.random.split(subjects.KEY, batch)
    return parameters, jax.vmap(lambda key: vf.generate(model, num_steps, key)[0])(keys)


def ours_and_dynamax(parameters: dict[str, np.ndarray]) -> tuple[vf.LinearGaussian, Any, Any, Any]:
    """The same model twice; dynamax's with its class and the properties of its parameters."""
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    size, latent = parameters["loading"].shape
    ssm = LinearGaussianSSM(latent, size)
    given = {name: jnp.asarray(value, jnp.float32) for name, value in parameters.items()}
    params, properties = ssm.initialize(
        subjects.KEY,
        initial_mean=jnp.zeros(latent),
        initial_covariance=given["initial_covariance"],
        dynamics_weights=given["transition"],
        dynamics_covariance=given["process_covariance"],
        emission_weights=given["loading"],
        emission_covariance=given["noise_covariance"],
    )
    return vf.LinearGaussian(**parameters), params, ssm, properties


def require_agreement(ours: list[jax.Array], theirs: list[jax.Array]) -> None:
    """Refuse to time what does not compute the same: evidences, and filtered means."""
    (evidence, means), (other, other_means) = ours, theirs
    np.testing.assert_allclose(evidence, other, rtol=1e-4)
    # Float32 over many steps, in covariances of order one.
    np.testing.assert_allclose(means, other_means, rtol=1e-2, atol=2e-3)


# Particle filters


def particles(*, quick: bool) -> list[dict[str, Any]]:
    """A row for each peer of the bootstrap filter; all resample below half of the particles."""
    num_particles, num_steps = (50, 8) if quick else (10_000, 100)
    xs = vf.generate(VOLATILITY, num_steps, subjects.KEY)[0]

    def ours(model: vf.AbstractModel, xs: jax.Array, key: jax.Array) -> jax.Array:
        filter = vf.ParticleFilter(vf.Prior(), num_particles)
        return jnp.sum(vf.run(filter, model, xs, key)[1].bound)

    calls = {
        "ours": compiled(ours, VOLATILITY, xs, subjects.KEY)[0],
        "by hand": compiled(by_hand, xs, subjects.KEY, num_particles)[0],
        "cuthbert": compiled(by_cuthbert(num_particles), xs, subjects.KEY)[0],
        "particles": by_particles(np.asarray(xs), num_particles),
    }
    exact = float(VOLATILITY.log_likelihood(xs))
    for name, call in calls.items():
        found = float(np.squeeze(call()[0] if name != "particles" else call()))
        # The error of a log-evidence by N particles is some sqrt(T / N); ten times that.
        if abs(found - exact) > 10 * np.sqrt(num_steps / num_particles):
            raise AssertionError(f"{name} finds a log-evidence of {found}, exact is {exact}")
    race = Race(calls, num_rounds=3 if quick else 41)
    name = f"bootstrap, N={num_particles}, T={num_steps}"
    return [row(name, race, "ours", peer) for peer in ("cuthbert", "particles", "by hand")]


def first_particles(num_particles: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    weights = jnp.full((num_particles,), -jnp.log(float(num_particles)))
    return jnp.zeros(num_particles), weights


def hand_step(carry: tuple, x: jax.Array, key: jax.Array) -> tuple[tuple, jax.Array]:
    """One step of a bootstrap filter, as one would write it for this model alone."""
    zs, log_weights, is_first = carry
    num_particles = zs.size
    key_draw, key_resample = jax.random.split(key)
    std = jnp.where(is_first, 1.0, jnp.exp(VOLATILITY.log_std))
    zs = VOLATILITY.factor * zs + std * jax.random.normal(key_draw, zs.shape)
    log_variance = zs + 2.0 * VOLATILITY.log_noise
    scores = -0.5 * (jnp.log(2 * jnp.pi) + log_variance + x[0] ** 2 * jnp.exp(-log_variance))
    joint = log_weights + scores
    total = jax.nn.logsumexp(joint)
    log_weights = joint - total
    size = 1.0 / jnp.sum(jnp.exp(2.0 * log_weights))

    def resample() -> tuple[jax.Array, jax.Array]:
        positions = (jnp.arange(num_particles) + jax.random.uniform(key_resample)) / num_particles
        ancestors = jnp.searchsorted(jnp.cumsum(jnp.exp(log_weights)), positions)
        ancestors = jnp.minimum(ancestors, num_particles - 1)
        return zs[ancestors], jnp.full_like(log_weights, -jnp.log(float(num_particles)))

    is_low = size < 0.5 * num_particles
    zs, log_weights = jax.lax.cond(is_low, resample, lambda: (zs, log_weights))
    return (zs, log_weights, jnp.array(False)), total


def by_hand(xs: jax.Array, key: jax.Array, num_particles: int) -> jax.Array:
    first = (*first_particles(num_particles, key), jnp.array(True))
    keys = jax.random.split(key, xs.shape[0])
    return jnp.sum(
        jax.lax.scan(lambda carry, given: hand_step(carry, *given), first, (xs, keys))[1]
    )


def by_cuthbert(num_particles: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    from cuthbert import filter as run
    from cuthbert.smc.particle_filter import build_filter
    from cuthbertlib.resampling.adaptive import ess_decorator
    from cuthbertlib.resampling.systematic import resampling

    std = jnp.exp(VOLATILITY.log_std)

    def propagate(key: jax.Array, z: jax.Array, given: tuple) -> jax.Array:
        return VOLATILITY.factor * z + jnp.where(given[1], 1.0, std) * jax.random.normal(key)

    def potential(before: jax.Array, z: jax.Array, given: tuple) -> jax.Array:
        log_variance = z + 2.0 * VOLATILITY.log_noise
        x = given[0][0]
        return -0.5 * (jnp.log(2 * jnp.pi) + log_variance + x**2 * jnp.exp(-log_variance))

    # Its first particles are not weighted: all of them 0, one step before the first.
    built = build_filter(
        lambda key: jnp.zeros(()), propagate, potential, num_particles,
        ess_decorator(resampling, 0.5),
    )  # fmt: skip

    def filtered(xs: jax.Array, key: jax.Array) -> jax.Array:
        key_first, key_rest = jax.random.split(key)
        is_first = jnp.arange(xs.shape[0]) == 0
        states = run(built, (xs, is_first), built.init_prepare(key=key_first), key=key_rest)
        return states.log_normalizing_constant[-1]

    return filtered


def by_particles(xs: np.ndarray, num_particles: int) -> Callable[[], float]:
    from particles import SMC, distributions, state_space_models

    factor, std = float(VOLATILITY.factor), float(jnp.exp(VOLATILITY.log_std))

    class Volatility(state_space_models.StateSpaceModel):
        def PX0(self) -> Any:
            return distributions.Normal(scale=1.0)

        def PX(self, t: int, xp: np.ndarray) -> Any:
            return distributions.Normal(loc=factor * xp, scale=std)

        def PY(self, t: int, xp: np.ndarray, x: np.ndarray) -> Any:
            return distributions.Normal(scale=np.exp(0.5 * x))

    data = list(xs[:, 0].astype(float))

    def run() -> float:
        kernel = state_space_models.Bootstrap(ssm=Volatility(), data=data)
        smc = SMC(fk=kernel, N=num_particles, resampling="systematic", ESSrmin=0.5)
        smc.run()
        return smc.logLt

    return run


# Streams


def streams(*, quick: bool) -> list[dict[str, Any]]:
    """A row for each kind of push and its peer, and one for many streams at once."""
    xs = subjects.observations(64)
    model = subjects.small()
    kalman_whole = vf.Stream(vf.KalmanFilter(), model)
    kalman_stream = vf.Stream(vf.KalmanFilter(), model, keep="posterior")
    deep = vf.DeepMarkov(8, 8, hidden_size=64, num_layers=1, key=subjects.KEY)
    avf = vf.VariationalFilter(vf.Iterative(deep, hidden_size=64, key=subjects.KEY))
    deep_stream = vf.Stream(avf, deep, subjects.KEY, keep="posterior")
    bootstrap = vf.ParticleFilter(vf.Prior(), 100)
    particle_stream = vf.Stream(bootstrap, VOLATILITY, subjects.KEY, keep="bound")
    wide = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)

    filterpy, filterpy_mean = filterpy_step()
    hand, hand_mean = hand_kalman_step()
    for x in xs:
        filterpy(x)
        hand(x)
        mean = kalman_stream.push(x).posterior.mean
    for other in (filterpy_mean(), hand_mean()):
        np.testing.assert_allclose(mean, other, rtol=1e-3, atol=1e-4)  # float32 against float64

    calls = {
        "filterpy": cycled(filterpy, xs),
        "Kalman by hand": cycled(hand, xs),
        "Stream(KalmanFilter)": cycled(
            lambda x: kalman_stream.push(x).bound.block_until_ready(), xs
        ),
        "the same, all of Filtered": cycled(
            lambda x: kalman_whole.push(x).bound.block_until_ready(), xs
        ),
        "100 particles by hand": cycled(hand_particle_step(100), xs[:, :1]),
        "Stream(ParticleFilter, 100)": cycled(
            lambda x: particle_stream.push(x).bound.block_until_ready(), xs[:, :1].copy()
        ),
        "Stream(AVF of x 8, z 8, h 64)": cycled(
            lambda x: deep_stream.push(x).bound.block_until_ready(), wide
        ),
    }
    race = Race(calls, num_rounds=5 if quick else 101, num_calls=5 if quick else 20)
    pairs = [
        ("Stream(KalmanFilter)", "Kalman by hand"),
        ("Stream(KalmanFilter)", "filterpy"),
        ("the same, all of Filtered", "filterpy"),
        ("Stream(ParticleFilter, 100)", "100 particles by hand"),
        ("Stream(AVF of x 8, z 8, h 64)", "filterpy"),
    ]
    rows = [row(name, race, name, peer) for name, peer in pairs]
    return [*rows, together(avf, deep, 8 if quick else 1024)]


def together(filter: vf.AbstractFilter, model: vf.AbstractModel, count: int) -> dict[str, Any]:
    """`count` streams stepped at once by vmap: the last figure is stream-steps a second."""
    beliefs = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), vf.start(filter, model)
    )
    xs = jax.random.normal(subjects.KEY, (count, 8))
    keys = jax.random.split(subjects.KEY, count)

    def step(beliefs: Any, xs: jax.Array, keys: jax.Array) -> Any:
        each = jax.vmap(lambda belief, x, key: vf.step(filter, model, belief, x, key))
        return each(beliefs, xs, keys)

    call, _ = compiled(step, beliefs, xs, keys)
    race = Race({"ours": call}, num_rounds=15)
    seconds = race.seconds("ours")
    return {
        "what": f"{count} streams at once", "peer": "", "ours_ms": 1e3 * seconds, "peer_ms": "",
        "ratio": "", "of_shortest": "", "streams_a_second": count / seconds,
    }  # fmt: skip


def filterpy_step() -> tuple[Callable[[np.ndarray], Any], Callable[[], np.ndarray]]:
    from streaming import _filterpy  # what imports filterpy

    return _filterpy()


def hand_kalman_step() -> tuple[Callable[[np.ndarray], Any], Callable[[], np.ndarray]]:
    """A jitted textbook step: update, log-likelihood, predict."""
    names = ("TRANSITION", "PROCESS", "LOADING", "NOISE")
    transition, process, loading, noise = (jnp.asarray(getattr(subjects, n), float) for n in names)

    @jax.jit
    def step(mean: jax.Array, covariance: jax.Array, x: jax.Array) -> Any:
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + process
        seen = loading @ covariance
        spread = seen @ loading.T + noise
        residual = x - loading @ mean
        score = jax.scipy.stats.multivariate_normal.logpdf(residual, jnp.zeros(2), spread)
        gain = jnp.linalg.solve(spread, seen).T
        return mean + gain @ residual, covariance - gain @ seen, score

    state = [jnp.zeros(4), jnp.eye(4)]

    def push(x: np.ndarray) -> None:
        *state[:], score = step(*state, x)
        score.block_until_ready()

    return push, lambda: np.asarray(state[0])


def hand_particle_step(num_particles: int) -> Callable[[np.ndarray], Any]:
    def counted(carry: tuple, count: jax.Array, x: jax.Array) -> Any:
        carry, total = hand_step(carry, x, jax.random.fold_in(subjects.KEY, count))
        return carry, count + 1, total

    step = jax.jit(counted)
    carry: Any = (*first_particles(num_particles, subjects.KEY), jnp.array(True))
    count: Any = jnp.zeros((), jnp.int32)

    def push(x: np.ndarray) -> None:
        nonlocal carry, count
        carry, count, total = step(carry, count, x)
        total.block_until_ready()

    return push


def cycled(push: Callable[[np.ndarray], Any], xs: np.ndarray) -> Callable[[], Any]:
    endless = itertools.cycle(xs)
    return lambda: push(next(endless))


# Memory


def memory(*, quick: bool) -> list[dict[str, Any]]:
    """A row for each thing to keep of 10,000 particles and steps, a process for each."""
    rows = []
    for kept in ("bound", "mean"):
        words = [sys.executable, __file__, "--run-of", kept, *(["--quick"] if quick else [])]
        done = subprocess.run(words, env=os.environ, capture_output=True, text=True, check=True)
        rows.append({"kept": kept, "peak_gib": float(done.stdout.split()[-1])})
    return rows


def run_many_particles(kept: str, *, quick: bool) -> None:
    """Print the most memory that this process had, in GiB, after filtering one long sequence."""
    size = 50 if quick else 10_000
    xs = jnp.zeros((size, 1))
    keep = {"bound": "bound", "mean": posterior_mean}[kept]
    filter = vf.ParticleFilter(vf.Prior(), size)
    jax.block_until_ready(vf.run(filter, VOLATILITY, xs, subjects.KEY, keep=keep))
    # Not `getrusage`, whose maximum a process takes over from the one that started it.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 2**20)


def posterior_mean(filtered: vf.Filtered) -> jax.Array:
    return filtered.posterior.mean


def row(what: str, race: Race, ours: str, peer: str) -> dict[str, Any]:
    return {
        "what": what,
        "peer": peer,
        "ours_ms": 1e3 * race.seconds(ours),
        "peer_ms": 1e3 * race.seconds(peer),
        "ratio": race.ratio(ours, to=peer),
        "of_shortest": min(race.wall[ours]) / min(race.wall[peer]),
    }


if __name__ == "__main__":
    main()
