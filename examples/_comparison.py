"""What the examples of this folder share: train under several inferences, and compare."""

import time
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import varfilter as vf


@dataclass
class Contestant:
    """A model with a filter, and how they learn."""

    learner: Any
    model: vf.AbstractModel
    filter: vf.VariationalFilter


def compare(contestants, draw, test, reference, *, num_updates, key, num_annealing=0):
    """Train each on batches from `draw(key)`; print its nats per step on `test`.

    The weight of the KL rises from 0 to 1 over the first `num_annealing` updates.

    Batches and `test` are (sequences, steps, ...): the first step is conditioned on, and not
    scored. `reference` is (what it is, its nats per step on `test`). Returns the scores.
    """
    scores = {}
    for name, contestant in contestants.items():
        learner = contestant.learner
        state = learner.init(contestant.model, contestant.filter)
        begin = time.perf_counter()
        for update in range(num_updates):
            key_data, key_update = jax.random.split(jax.random.fold_in(key, update))
            batch = draw(key_data)
            weight = min(1.0, update / max(1, num_annealing))
            state, metrics = learner.update(
                state, batch[:, 1:], key_update, x0=batch[:, 0], kl_weight=weight
            )
            if update % max(1, num_updates // 5) == 0:
                print(f"  {name}, update {update}: {float(metrics.free_energy):.2f} nats per step")
        seconds = time.perf_counter() - begin
        values = evaluate(state.model, state.filter, test, key)
        blind = evaluate(state.model, vf.VariationalFilter(vf.Prior()), test, key)
        scores[name] = values | {
            "at_prior": blind["free_energy"],
            "seconds": seconds,
            "num_skipped": int(state.num_skipped),
        }
    _print(scores, *reference)
    return scores


@eqx.filter_jit
def _evaluate(model, filter, test, key):
    def sequence(xs, key):
        return vf.run(filter, model, xs[1:], key, x0=xs[0], complete=True)[1].info

    info = jax.vmap(sequence)(test, jax.random.split(key, test.shape[0]))
    return {
        "free_energy": jnp.mean(info.free_energy),
        "reconstruction": jnp.mean(info.reconstruction),
        "kl": jnp.mean(info.kl),
        "by_iteration": jnp.mean(info.free_energies, axis=(0, 1)),
    }


def evaluate(model, filter, test, key):
    """Means over all steps of all sequences, in nats."""
    values = _evaluate(model, filter, test, key)
    return {name: value.tolist() for name, value in values.items()}


def _print(scores, what, nats):
    print(f"\n{'nats per step, held out':<26}{'F':>10}{'KL':>9}{'q = prior':>11}{'seconds':>9}")
    print(f"{what:<26}{nats:>10.2f}")
    for name, score in scores.items():
        row = (score["free_energy"], score["kl"], score["at_prior"], score["seconds"])
        print(f"{name:<26}{row[0]:>10.2f}{row[1]:>9.2f}{row[2]:>11.2f}{row[3]:>9.0f}")
        if len(score["by_iteration"]) > 1:
            print("  by iteration", " ".join(f"{value:.2f}" for value in score["by_iteration"]))
