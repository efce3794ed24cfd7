"""Clocks and scales: time contestants fairly, and weigh what a process holds."""

import gc
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Call = Callable[[], Any]
GIB = 2**30


class Spread(NamedTuple):
    """Seconds of one call: the median over rounds of calls, and the quartiles around it."""

    median: float
    low: float
    high: float
    num_rounds: int
    num_calls: int

    def times(self, factor: float) -> dict[str, float | int]:
        """The figures for a report, in another unit."""
        return {
            "median": factor * self.median,
            "low": factor * self.low,
            "high": factor * self.high,
            "num_rounds": self.num_rounds,
            "num_calls": self.num_calls,
        }


def paced(launch: Call, wait: Callable[[Any], Any], *, seconds: float) -> Spread:
    """Time `launch` in rounds that last about `seconds` in all.

    A round makes as many calls as fill a twentieth of a second and waits for the last, so that
    the next call is on its way while one is computed, as it is in training. The first two calls
    are not counted: they pay for memory that the later ones reuse.
    """
    wait(launch())
    begin = time.perf_counter()
    wait(launch())
    once = time.perf_counter() - begin
    num_calls = min(max(round(0.05 / once), 1), 500)
    num_rounds = min(max(round(seconds / (num_calls * once)), 3), 41)
    taken = []
    for _ in range(num_rounds):
        begin = time.perf_counter()
        for _ in range(num_calls):
            last = launch()
        wait(last)
        taken.append((time.perf_counter() - begin) / num_calls)
    low, median, high = np.percentile(taken, [25, 50, 75]).tolist()
    return Spread(median, low, high, num_rounds, num_calls)


class Program:
    """`function` compiled ahead of time for arguments of these shapes, called on flat arrays.

    A call costs little beside its computation: nothing is partitioned or flattened for it. With
    `donate` the memory of the first argument is given to the results.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, donate: bool = False):
        self.arguments: tuple[list, ...] = ()
        dynamic, statics = zip(*(eqx.partition(a, _is_shaped) for a in arguments), strict=True)
        flat = [jax.tree.flatten(each) for each in dynamic]
        trees = [tree for _, tree in flat]

        def called(*leaves: list) -> list:
            given = (
                eqx.combine(jax.tree.unflatten(tree, each), static)
                for tree, each, static in zip(trees, leaves, statics, strict=True)
            )
            arrays, self._static = eqx.partition(function(*given), eqx.is_array)
            results, self._tree = jax.tree.flatten(arrays)
            return results

        begin = time.perf_counter()
        lowered = jax.jit(called, donate_argnums=(0,) if donate else ()).lower(
            *(leaves for leaves, _ in flat)
        )
        self.executable = lowered.compile()
        self.compile_seconds = time.perf_counter() - begin

    def bind(self, *arguments: Any) -> "Program":
        """Take the arrays that the calls are to be made with."""
        self.arguments = tuple(jax.tree.leaves(eqx.filter(a, eqx.is_array)) for a in arguments)
        return self

    def launch(self) -> list[jax.Array]:
        """Begin one call with the arguments that are bound, and do not wait for it."""
        return self.executable(*self.arguments)

    def tree(self, leaves: list[jax.Array]) -> Any:
        """The results as `function` returned them."""
        return eqx.combine(jax.tree.unflatten(self._tree, leaves), self._static)

    def spread(self, *, seconds: float) -> Spread:
        """Time the calls."""
        return paced(self.launch, jax.block_until_ready, seconds=seconds)

    @property
    def temporary_bytes(self) -> int | None:
        """What the program needs beside its arguments and results, as the compiler says."""
        analysis = self.executable.memory_analysis()
        return None if analysis is None else int(analysis.temp_size_in_bytes)


class Chain(Program):
    """A compiled `state, seen = function(state, i, *others)` that each call carries on.

    The memory of each state is given to the next one, as in training.
    """

    def __init__(self, function: Callable[..., Any], state: Any, *others: Any):
        def advanced(carry: Any, *others: Any) -> Any:
            state, index = carry
            state, seen = function(state, index, *others)
            return (state, index + 1), seen

        first = (state, jnp.zeros((), jnp.int32))
        super().__init__(advanced, first, *others, donate=True)
        self.bind(first, *others)
        # Copies: what is given away must not be the caller's, nor be in it twice.
        self.carry = [jnp.array(leaf) for leaf in self.arguments[0]]

    def launch(self, *others: list) -> list[jax.Array]:
        """Make one more step; returns what was seen of it."""
        results = self.executable(self.carry, *(others or self.arguments[1:]))
        count = len(self.carry)
        self.carry, seen = results[:count], results[count:]
        return seen


def side_by_side(programs: Mapping[str, Callable[[], Program]]) -> dict[str, Program]:
    """Compile programs in threads, one each; the compiler does not hold Python's lock."""
    with ThreadPoolExecutor(max_workers=max(len(programs), 1)) as pool:
        futures = {name: pool.submit(build) for name, build in programs.items()}
        return {name: future.result() for name, future in futures.items()}


def shapes(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` would return, with the shapes of arrays in their place."""
    return eqx.filter_eval_shape(function, *arguments)


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Call, float]:
    """(a call that computes `function(*arguments)` and waits for it, seconds to compile).

    The call returns the leaves of the result.
    """
    program = Program(function, *arguments).bind(*arguments)
    return lambda: jax.block_until_ready(program.launch()), program.compile_seconds


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


def peak_gib() -> float:
    """The most memory that was in use so far: of the device if it counts, else of the process."""
    statistics_of_device = jax.devices()[0].memory_stats()
    if statistics_of_device is not None and "peak_bytes_in_use" in statistics_of_device:
        return statistics_of_device["peak_bytes_in_use"] / GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def growth_exponent(sizes: list[int], seconds: list[float]) -> float:
    """b of the fit seconds = a size^b: 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _median_ratio(times: Mapping[str, list[float]], name: str, to: str) -> float:
    return statistics.median(a / b for a, b in zip(times[name], times[to], strict=True))


def _is_shaped(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
