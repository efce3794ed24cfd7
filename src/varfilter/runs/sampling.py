"""Sequences that a trained model makes up, from where training sequences begin or from a file."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from varfilter._arguments import require_positive
from varfilter.filtering import FIRST
from varfilter.media import new_sequences
from varfilter.media.rows import objects
from varfilter.models import Ensemble, settled
from varfilter.observation import fill_first
from varfilter.runs.applied import AppliedRun, apply_run
from varfilter.runs.run import Run
from varfilter.runs.starts import starts_of
from varfilter.simulation import Observe, forecast, generate, require_temperature

# Folded into the key of the run: which beginnings are drawn, and what follows a given one.
WHICH, ONWARD = 0x57, 0x0E


class Sample(NamedTuple):
    """A sequence in the model's units, (steps, *event): what was given, then what was made up.

    `num_given` steps at its beginning were given: the one that a training sequence begins with, or
    all that was to be continued. `name` is that of the sequence that was continued, and `times` are
    those of the steps where the given ones have some; None: they count from the beginning. `schema`
    is that of the sequence that was continued, where it has its own (`NewSequence.schema`).
    """

    xs: np.ndarray
    num_given: int
    name: str | int | None = None
    times: np.ndarray | None = None
    schema: Any = None

    @property
    def made(self) -> np.ndarray:
        """The steps that the model made up."""
        return self.xs[self.num_given :]


def sample_run(
    run: Run,
    num_steps: int,
    num_sequences: int = 1,
    *,
    start: Any = None,
    mean: bool = False,
    temperature: float | int = 1.0,
    inputs: Any = None,
    seed: int = 0,
    num_particles: int | None = None,
) -> list[Sample]:
    """Sequences of `num_steps` from the model as learned, the first step of a training sequence's.

    With `start`, data like those of `filter_data`, each of its sequences is filtered to its end
    with `num_particles` trajectories and goes on for `num_steps` from there, `num_sequences` times.

    With `mean`, x_t is the mean of its emission in place of a draw, or what stands for it in the
    medium (`AbstractMedium.likely`), in what is returned and in what the model is told of; z_t is
    drawn all the same. `temperature` scales the randomness of both draws at each step, as
    `varfilter.generate` says. `inputs` is a table of the input columns of the steps that are made
    up, of a run that has any.
    """
    require_positive("num_steps", num_steps)
    require_positive("num_sequences", num_sequences)
    temperature = require_temperature(temperature)
    applied = apply_run(run, seed=seed, spread=1.0, num_particles=num_particles)
    # One function for all sequences: another would be compiled again.
    observe = observed_mean(run) if mean else None
    if start is None:
        found = _from_training_starts(
            run, applied, num_steps, num_sequences, inputs, temperature, observe
        )
    else:
        found = _continued(
            run, applied, start, num_steps, num_sequences, inputs, temperature, observe
        )
    return list(found)


def observed_mean(run: Run) -> Observe:
    """What stands for x_t in place of a draw: its mean, as the run's medium has it."""
    likely, template = run.medium.likely, run.template
    return lambda emission: likely(template, emission.mean)


def _from_training_starts(
    run: Run,
    applied: AppliedRun,
    num_steps: int,
    num_sequences: int,
    inputs: Any,
    temperature: float,
    observe: Observe | None,
) -> Iterator[Sample]:
    """Sequences that begin as some of training do, drawn without repeats while there are others."""
    plan = run.medium.plan(run.template, inputs)
    known = run.medium.inputs_of_samples(run.template, num_steps, num_sequences, plan)
    starts = starts_of(run)
    order = [0]
    if starts is not None:
        which = jax.random.fold_in(applied.key, WHICH)
        order = np.asarray(jax.random.permutation(which, len(starts))).tolist()
    model = settled(applied.model)
    # Of an ensemble, one member after the other.
    models = itertools.cycle(
        map(model.member, range(model.num_members)) if isinstance(model, Ensemble) else [model]
    )
    # One after another: a video of many frames has no need to lie in memory many times.
    keys = jax.random.split(applied.key, num_sequences)
    draw = functools.partial(generate, temperature=temperature, observe=observe)
    for model, key, us, i in zip(models, keys, known, itertools.cycle(order), strict=False):
        if starts is None:
            yield Sample(np.asarray(draw(model, num_steps, key, us=us)[0]), 0)
            continue
        first = jax.random.fold_in(jax.random.fold_in(key, 0), FIRST)
        x0 = np.asarray(_filled(model, jnp.asarray(starts[i]), first))
        xs = x0[None]
        if num_steps > 1:
            us = None if us is None else us[1:]
            xs = np.concatenate([xs, draw(model, num_steps - 1, key, us=us, x0=x0)[0]])
        yield Sample(xs, 1)


def _continued(
    run: Run,
    applied: AppliedRun,
    start: Any,
    num_steps: int,
    num_sequences: int,
    inputs: Any,
    temperature: float,
    observe: Observe | None,
) -> Iterator[Sample]:
    plan = run.medium.plan(run.template, inputs)
    for each in new_sequences(run.template, run.experiment.data, start):
        sequence, ahead = run.medium.ahead(run.template, each, num_steps, plan)
        belief = applied.last_belief(sequence)
        key = jax.random.fold_in(jax.random.fold_in(applied.key, belief.t), ONWARD)
        times = objects([*sequence.times, *ahead.times])
        # One after another, as above.
        for own in jax.random.split(key, num_sequences):
            drawn = forecast(
                applied.filter, settled(applied.model), belief, num_steps, own,
                us=ahead.us, num_samples=1, temperature=temperature, observe=observe,
            )  # fmt: skip
            xs = np.concatenate([sequence.xs, np.asarray(drawn.samples[0])])
            yield Sample(xs, len(sequence.xs), sequence.name, times, sequence.schema)


_filled = eqx.filter_jit(fill_first)
