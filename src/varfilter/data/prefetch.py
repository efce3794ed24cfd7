"""Batches of sets that do not fit in memory: read ahead by several workers, in a fixed order."""

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from jaxtyping import Array, PRNGKeyArray

from varfilter._arguments import kind, require_all_positive, require_key
from varfilter.data.batches import Batch, RandomWindows


def prefetched(
    windows: RandomWindows,
    key: PRNGKeyArray,
    *,
    first_step: int = 0,
    part: slice = slice(None),
    num_workers: int = 2,
    num_ahead: int = 4,
) -> Generator[Batch, None, None]:
    """The batches of `windows` from `first_step` on, without end, as `windows.windows` gives them.

    Where a window lies depends on the step and the key alone, and batches are handed out in
    the order of the steps: the number of workers changes nothing but the speed. While the
    caller learns from one batch the next `num_ahead` are read. Threads, not processes: cutting
    rows out of a memory map is copying, which holds no lock. `close` ends them. `part` is which
    of the windows of each batch to read, where other processes read the rest.
    """
    require_all_positive(num_workers=num_workers, num_ahead=num_ahead)
    require_key(key)
    if not isinstance(first_step, int | np.integer) or first_step < 0:
        raise ValueError(
            f"`first_step` must be a whole number, at least 0; got {kind(first_step)}."
        )
    return _batches(windows, key, int(first_step), part, num_workers, num_ahead)


def _batches(
    windows: RandomWindows,
    key: PRNGKeyArray,
    step: int,
    part: slice,
    num_workers: int,
    num_ahead: int,
) -> Generator[Batch, None, None]:
    # Only reading is left to the workers. Drawing and scaling are started here, which does not
    # wait for them: the caller's settings of jax, such as the device, hold in its own thread.
    def read(chosen: Array, first: Array) -> np.ndarray:
        return windows.read(np.asarray(chosen)[part], np.asarray(first)[part])

    epoch, order = -1, None
    pending: deque[Future[np.ndarray]] = deque()
    with ThreadPoolExecutor(num_workers, "varfilter-prefetch") as pool:
        try:
            while True:
                while len(pending) <= num_ahead:
                    if step // windows.num_batches != epoch:
                        epoch = step // windows.num_batches
                        order = windows.order(epoch, key)
                    pending.append(pool.submit(read, *windows.draw(step, key, order)))
                    step += 1
                yield windows.batch(pending.popleft().result())
        finally:
            for future in pending:
                future.cancel()
