"""Clocks and scales: time contestants fairly, and weigh what a process holds."""

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

Call = Callable[[], Any]


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Call, float]:
    """(a call that computes `function(*arguments)` and waits for it, seconds to compile).

    Ahead of time and on flat arrays, so that the call costs little beside its computation.
    """
    arrays, static = eqx.partition(arguments, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)

    def flat(leaves: list[jax.Array]) -> list[jax.Array]:
        results = function(*eqx.combine(jax.tree.unflatten(tree, leaves), static))
        return jax.tree.leaves(eqx.filter(results, eqx.is_array))

    begin = time.perf_counter()
    executable = jax.jit(flat).lower(leaves).compile()
    seconds = time.perf_counter() - begin
    return lambda: jax.block_until_ready(executable(leaves)), seconds


class Race:
    """`num_rounds` rounds in which each contestant in turn makes `num_calls` calls."""

    def __init__(self, contestants: Mapping[str, Call], *, num_rounds: int, num_calls: int = 1):
        self.wall: dict[str, list[float]] = {name: [] for name in contestants}
        self.cpu: dict[str, list[float]] = {name: [] for name in contestants}
        for call in contestants.values():
            call()  # the first call pays for memory that the later ones reuse
        for _ in range(num_rounds):
            for name, call in contestants.items():
                wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(num_calls):
                    call()
                self.wall[name].append((time.perf_counter() - wall) / num_calls)
                self.cpu[name].append((time.process_time() - cpu) / num_calls)

    def seconds(self, name: str) -> float:
        """The median time of one call."""
        return statistics.median(self.wall[name])

    def ratio(self, name: str, to: str) -> float:
        """How many times as long as `to` a call takes: the median of the rounds' ratios."""
        return _median_ratio(self.wall, name, to)

    def cpu_ratio(self, name: str, to: str) -> float:
        """The same in the time that all cores together spent on it."""
        return _median_ratio(self.cpu, name, to)


def live_bytes() -> int:
    """The size of all arrays that jax holds."""
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


def resident_bytes() -> float:
    """The memory of this process, NaN where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def growth_exponent(sizes: list[int], seconds: list[float]) -> float:
    """b of the fit seconds = a size^b: 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _median_ratio(times: Mapping[str, list[float]], name: str, to: str) -> float:
    return statistics.median(a / b for a, b in zip(times[name], times[to], strict=True))
