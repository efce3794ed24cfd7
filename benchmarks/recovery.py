"""Which parameters each bound chooses: textbook models learned from their own data.

    python benchmarks/recovery.py [--quick] [--json FILE] [--only recovery|gradient]
        [--proposals NAME ...]

Data are simulated from AR(1) with noise (factor 0.9) and from stochastic volatility (factor 0.95),
several data sets of several sequences each, and all three parameters of the model are learned
anew from each: by the one-path bound (the free energy of `VariationalFilter`), by IWAE and by FIVO
with both of its gradients, under the bootstrap proposal and under AVF's. Beside them stands the
maximum of the exact likelihood of the same data, of which the distance is printed: the mean over
data sets of factor - exact factor, and the root mean square of it. All data sets learn at once.

Then the gradient itself, of AR(1) at the truth: d/d(factor) a step, for several data sets each the
exact score beside what differentiating FIVO gives, by the number of particles. The distance of the
mean over keys from the exact score is averaged over the data sets, as it is and as a root mean
square (RMS); of the latter, `noise` is what the number of keys explains by itself. `std` is the
standard deviation of one gradient, `time` how many times that of fixed ancestors it takes.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from measure import Race, compiled
from textbook import MODELS, NAMES, mean_log_likelihood, parameters, simulated

import varfilter as vf
from varfilter.experiments.settings import filter_with
from varfilter.inference import AbstractInference, GradientDescent, SignedLog
from varfilter.inference.gradient import descend

ONE_PATH, FIXED, SCORED = "one path", "fixed-ancestors", "scored-ancestors"
PROPOSALS = ["gradient E-step", "bootstrap", "AVF"]
BOUNDS: dict[str, tuple[str, str]] = {
    "IWAE": ("iwae", FIXED),
    "FIVO, fixed ancestors": ("fivo", FIXED),
    "FIVO, scored ancestors": ("fivo", SCORED),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--only", choices=("recovery", "gradient"), help="one of the two")
    parser.add_argument("--proposals", nargs="+", choices=PROPOSALS, default=PROPOSALS)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.only != "gradient":
        found["recovery"] = recovery(options.proposals, quick=options.quick)
    if options.only != "recovery":
        found["gradient"] = gradient_at_the_truth(quick=options.quick)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


# What is recovered


def recovery(proposals: list[str], *, quick: bool) -> list[dict[str, Any]]:
    """A row for each model, bound and proposal; printed as a table in Markdown as they come."""
    shape = (2, 2, 20) if quick else (5, 8, 100)
    num_updates, num_particles = (4, 4) if quick else (300, 64)
    print("| model | learned by | proposal | factor | from exact | RMS | log-likelihood lost | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for name, (truth, start) in MODELS.items():
        xs = simulated(truth, shape, jax.random.key(1))
        begun = type(truth)(*start)
        exact = most_likely(begun, xs, 50 if quick else 400)
        best = jax.vmap(mean_log_likelihood)(exact, xs)
        rows.append(_row(name, "exact likelihood", "", exact, exact, best - best, 0.0))
        for method, proposal in _contestants():
            if proposal not in proposals:
                continue
            begin = time.perf_counter()
            learned = learn(begun, method, proposal, xs, num_updates, num_particles)
            seconds = time.perf_counter() - begin
            lost = best - jax.vmap(mean_log_likelihood)(learned, xs)
            rows.append(_row(name, method, proposal, learned, exact, lost, seconds))
    return rows


def _contestants() -> list[tuple[str, str]]:
    found = [(ONE_PATH, "gradient E-step"), (ONE_PATH, "AVF")]
    return found + [(bound, how) for how in ("bootstrap", "AVF") for bound in BOUNDS]


def most_likely(model: Any, xs: jax.Array, num_updates: int) -> Any:
    """The maximum of the exact likelihood of each data set, by Adam on the exact gradient."""
    rate = optax.cosine_decay_schedule(0.1, num_updates)
    adam = optax.adam(rate)

    @jax.jit
    @jax.vmap
    def climbed(xs: jax.Array) -> Any:
        def update(carry: Any, _: None) -> tuple[Any, None]:
            model, state = carry
            gradient = eqx.filter_grad(lambda m: -mean_log_likelihood(m, xs))(model)
            step, state = descend(adam, gradient, state, model)
            return (eqx.apply_updates(model, step), state), None

        first = jax.tree.map(jnp.asarray, (model, adam.init(model)))
        return jax.lax.scan(update, first, None, num_updates)[0][0]

    return climbed(xs)


def learn(
    model: Any, method: str, proposal: str, xs: jax.Array, num_updates: int, num_particles: int
) -> Any:
    """The model as learned from each data set: the mean of its parameters over the last fifth."""
    inference = _inference(proposal, model)
    theta = optax.adam(optax.cosine_decay_schedule(0.05, num_updates, alpha=0.02))
    phi = optax.adam(1e-2)
    if method == ONE_PATH:
        learner = vf.TimeParallel(theta=theta, phi=phi, num_phi_steps=4)
        filter = vf.VariationalFilter(inference)
    else:
        learner = vf.EndToEnd(theta=theta, phi=phi)
        bound, gradient = BOUNDS[method]
        filter = filter_with(inference, bound, num_particles, gradient)
    first = learner.init(model, filter)
    arrays, static = eqx.partition(first, eqx.is_array)

    @jax.jit
    @jax.vmap
    def learned(xs: jax.Array, key: jax.Array) -> jax.Array:
        def update(arrays: Any, i: jax.Array) -> tuple[Any, jax.Array]:
            state = eqx.combine(arrays, static)
            state, _ = learner.update(state, xs, jax.random.fold_in(key, i))
            return eqx.filter(state, eqx.is_array), parameters(state.model)

        return jax.lax.scan(update, arrays, jnp.arange(num_updates))[1]

    path = learned(xs, jax.random.split(jax.random.key(2), xs.shape[0]))
    values = jnp.mean(path[:, -max(1, num_updates // 5) :], axis=1)
    return jax.vmap(lambda row: type(model)(*row))(values)


def _inference(proposal: str, model: Any) -> AbstractInference:
    if proposal == "bootstrap":
        return vf.Prior()
    if proposal == "gradient E-step":
        # To convergence: with half of the steps and a quarter of the draws it is not there yet.
        rate = optax.cosine_decay_schedule(0.3, 40)
        return GradientDescent(optax.adam(rate), num_iterations=40, num_samples=16)
    # Of one latent a layer norm would leave nothing.
    return vf.Iterative(
        model, normalize=SignedLog(), encode_observation=True,
        hidden_size=16, num_layers=1, num_samples=4, key=jax.random.key(3),
    )  # fmt: skip


def _row(
    name: str, method: str, proposal: str, found: Any, exact: Any, lost: Any, seconds: float
) -> dict[str, Any]:
    values, best = (np.asarray(jax.vmap(parameters)(each)) for each in (found, exact))
    off = values[:, 0] - best[:, 0]
    row = {
        "model": name,
        "method": method,
        "proposal": proposal,
        **{key: value.tolist() for key, value in zip(NAMES, values.T, strict=True)},
        "mean_off": float(off.mean()),
        "rms_off": float(np.sqrt(np.mean(off**2))),
        "nats_lost": float(np.mean(np.asarray(lost))),
        "seconds": seconds,
    }
    print(
        f"| {name} | {method} | {proposal} | {values[:, 0].mean():.3f} | {off.mean():+.3f}"
        f" | {row['rms_off']:.3f} | {row['nats_lost']:.4f} | {seconds:.0f} |",
        flush=True,
    )
    return row


# The gradient at the truth


def gradient_at_the_truth(*, quick: bool) -> dict[str, Any]:
    """d/d(factor) a step of AR(1), exact and by both gradients, as the particles grow in number."""
    truth, _ = MODELS["AR(1) with noise"]
    num_keys = 4 if quick else 16
    xs = simulated(truth, (2, 2, 10) if quick else (8, 2, 100), jax.random.key(4))
    exact = np.asarray(
        jax.vmap(lambda x: eqx.filter_grad(mean_log_likelihood)(truth, x).factor)(xs)
    )
    print(f"\nThe exact scores: {' '.join(f'{score:+.4f}' for score in exact)}\n")
    print("| particles | proposal | gradient | mean - exact | RMS | noise | std | time |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    networks = _trained(truth, jnp.concatenate(list(xs)), 2 if quick else 150)
    proposals = {"bootstrap": vf.Prior(), "AVF": networks}
    keys = jax.random.split(jax.random.key(5), num_keys)
    rows = []
    for num_particles in (2, 4) if quick else (16, 64, 256, 1024):
        for proposal, inference in proposals.items():
            calls, values = {}, {}
            for gradient in (FIXED, SCORED):
                filter = filter_with(inference, "fivo", num_particles, gradient)
                function = _factor_gradients(filter, xs)
                values[gradient] = np.asarray(eqx.filter_jit(function)(truth, keys))
                calls[gradient], _ = compiled(function, truth, keys[:1])
            race = Race(calls, num_rounds=3)
            for gradient, each in values.items():
                off, variance = each.mean(0) - exact, each.var(0, ddof=1).mean()
                row = {
                    "num_particles": num_particles,
                    "proposal": proposal,
                    "gradient": gradient,
                    "mean_off": float(off.mean()),
                    "rms_off": float(np.sqrt(np.mean(off**2))),
                    "noise": float(np.sqrt(variance / num_keys)),
                    "std": float(np.sqrt(variance)),
                    "times_fixed": race.cpu_ratio(gradient, FIXED),
                }
                rows.append(row)
                print(
                    f"| {num_particles} | {proposal} | {gradient} | {row['mean_off']:+.4f}"
                    f" | {row['rms_off']:.4f} | {row['noise']:.4f} | {row['std']:.4f}"
                    f" | {row['times_fixed']:.2f} |",
                    flush=True,
                )
    return {"exact": exact.tolist(), "rows": rows}


def _factor_gradients(filter: Any, xs: jax.Array) -> Any:
    """d/d(factor) of the bound a step, for each key and each data set."""

    def bound(model: Any, xs: jax.Array, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, xs.shape[0])
        each = jax.vmap(lambda x, k: jnp.sum(vf.run(filter, model, x, k)[1].bound))(xs, keys)
        return jnp.sum(each) / (xs.shape[0] * xs.shape[1])

    def gradients(model: Any, keys: jax.Array) -> jax.Array:
        def of_key(key: jax.Array) -> jax.Array:
            return jax.vmap(lambda x: eqx.filter_grad(bound)(model, x, key).factor)(xs)

        return jax.lax.map(of_key, keys)

    return gradients


def _trained(model: Any, xs: jax.Array, num_updates: int) -> AbstractInference:
    """AVF's network, learned with the model held at the truth."""
    learner = vf.TimeParallel(theta=None, phi=optax.adam(1e-2), num_phi_steps=4)
    state = learner.init(model, vf.VariationalFilter(_inference("AVF", model)))
    for i in range(num_updates):
        state, _ = learner.update(state, xs, jax.random.fold_in(jax.random.key(6), i))
    return state.filter.inference


if __name__ == "__main__":
    main()
