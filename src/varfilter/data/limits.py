"""How large a file may become: what it announces is asked for before anything is allocated.

A file of a few hundred bytes can announce a picture of 60,000 by 60,000 pixels, or unpack to
gigabytes. What a file needs in memory is estimated from its header and refused where it is more
than there is: libraries written in other languages end the process where memory is out.
"""

import os
from contextlib import suppress
from pathlib import Path

# The variable that sets the limit, in GiB; what is set there is taken as it is.
VARIABLE = "VARFILTER_MAX_GIB"
# Without it: what one file may need at most, however much memory there is.
MOST_BYTES = 16 << 30
# And of the memory that is free, this part: estimates are rough, and other things need some.
PART = 0.75
# Text shrinks ten times, constant columns a hundred times; a bomb, a thousand times.
MOST_TIMES, MOST_AT_LEAST = 200, 64 << 20


def most_bytes() -> int:
    """The bytes that one file may need in memory: $VARFILTER_MAX_GIB, or by what is free."""
    if (given := os.environ.get(VARIABLE)) is None:
        return min(MOST_BYTES, int(PART * _free_bytes()))
    try:
        gib = float(given)
    except ValueError:
        gib = 0.0
    if not 0.0 < gib < 1e9:
        raise ValueError(f"`${VARIABLE}` must be a positive number of GiB; got {given!r}.")
    return int(gib * (1 << 30))


def require_size(what: str, num_bytes: float | int) -> None:
    """Refuse what would need more than `most_bytes()`.

    `what` is the beginning of the sentence: the file, and what it announces.
    """
    most = most_bytes()
    if num_bytes > most:
        enough = max(1, -(-num_bytes // 2**30))
        raise ValueError(
            f"{what}, for which {_gib(num_bytes)} of memory are needed; the most is {_gib(most)}"
            f" here. If you trust it, raise the limit: {VARIABLE}={enough:.0f}."
        )


def require_expansion(what: str, num_bytes: int, packed: int) -> None:
    """Refuse a packed file of `packed` bytes that unpacks to far more than such files do."""
    require_size(what, num_bytes)
    is_usual = num_bytes <= max(MOST_TIMES * packed, MOST_AT_LEAST)
    if not is_usual and VARIABLE not in os.environ:
        raise ValueError(
            f"{what}, which is {num_bytes // max(packed, 1)} times the {packed} bytes of the file:"
            f" no usual data. If you trust it, set a limit yourself: {VARIABLE}=4."
        )


def _gib(num_bytes: float | int) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes:.0f} bytes"


def _free_bytes() -> int:
    """The memory that this process may still take, as far as the system says."""
    found = [MOST_BYTES]
    # Each is missing somewhere: other systems, containers, limits that are not set.
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):
        # All of it: what is in use there counts the files that the system keeps at hand.
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            found.append(limit - pages * resource.getpagesize())
    return max(min(found), 0)
