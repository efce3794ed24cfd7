"""How time and memory grow: with T, B, K, the draws S and the particles N."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from measure import Program, growth_exponent, paced, side_by_side
from updates import KEY, ONE, PRESETS, Row, Subject, prepare, update_chain

import varfilter as vf
from varfilter.learning.end_to_end import filter_batch
from varfilter.learning.state import Sequences

PRESET = PRESETS["music-one"]
# The sizes of each axis; the others stay those of the preset.
SIZES = {
    "T": (25, 50, 100, 200),
    "B": (16, 64, 256),
    "K": (1, 4, 16),
    "S": (1, 8, 64),
    "N": (1, 16, 64),
}
QUICK = {"T": (3, 6), "B": (1, 2), "K": (1, 2), "S": (1, 2), "N": (1, 2)}


def measure_growth(*, quick: bool) -> Iterator[Row]:
    """Filtering by every axis, and the whole update by the length of its windows."""
    seconds = 0.1 if quick else 0.7
    for axis, sizes in (QUICK if quick else SIZES).items():
        subjects = {size: _subject(axis, size, quick=quick) for size in sizes}
        programs = side_by_side(
            {str(size): _builder(axis, size, each) for size, each in subjects.items()}
        )
        medians = []
        for size, subject in subjects.items():
            program = programs[str(size)]
            spread = program.spread(seconds=seconds)
            medians.append(spread.median)
            yield {
                "kind": "growth", "what": "filtering", "axis": axis, "size": size,
                "ms_per_step": spread.times(1e3 / subject.num_steps),
                "temporary_bytes": program.temporary_bytes,
            }  # fmt: skip
        yield {
            "kind": "exponent", "what": "filtering", "axis": axis,
            "time": growth_exponent(list(sizes), medians),
        }  # fmt: skip
    for size in (QUICK if quick else SIZES)["T"]:
        subject = _subject("T", size, quick=quick)
        chain = update_chain(subject)
        spread = paced(chain.launch, jax.block_until_ready, seconds=seconds)
        yield {
            "kind": "growth", "what": "update", "axis": "T", "size": size,
            "ms_per_step": spread.times(1e3 / subject.num_steps),
            "temporary_bytes": chain.temporary_bytes,
        }  # fmt: skip


def _subject(axis: str, size: int, *, quick: bool) -> Subject:
    sizes = {"T": {"num_steps": size + (axis == "T" and quick)}, "B": {"batch_size": size}}
    return prepare(PRESET, quick=quick, **sizes.get(axis, {}))


def _builder(axis: str, size: int, subject: Subject) -> Any:
    """A compiled filter that returns the bound of each step and keeps nothing else."""
    filter: Any = subject.state.filter
    match axis:
        case "K":
            filter = vf.VariationalFilter(filter.inference.with_num_iterations(size))
        case "S":
            choice = replace(subject.experiment.filter.inference, num_samples=size)
            filter = vf.VariationalFilter(choice.build(subject.state.model, KEY))
        case "N":
            filter = vf.ParticleFilter(filter.inference, size)

    def filtering(model: Any, filter: Any, batch: Sequences, index: jax.Array) -> Any:
        key = jax.random.fold_in(KEY, index)
        return filter_batch(model, filter, batch, key, ONE, complete=True)[0]

    arguments = subject.state.model, filter, subject.batch, jnp.zeros((), jnp.int32)
    return lambda: Program(filtering, *arguments).bind(*arguments)
