"""Programs compile quickly, and are kept in the user's cache folder: a second start is quicker yet.

JAX keeps and finds them itself, and `_programs` what they were compiled from; here is where, how
many, and when not. What it finds it runs: the
folder must be the user's own. (A process that is out of memory maps, of which Linux gives 65,530,
dies a few programs earlier with a cache than without. A command has some hundreds.)
"""

import hashlib
import os
import platform
import stat
import zlib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from varfilter._files import PROGRAMS, cache_folder

# The folder to keep programs in, or `off`.
VARIABLE = "VARFILTER_COMPILED"
WHOLE = ".whole"
ZSTANDARD = b"\x28\xb5\x2f\xfd"
# More than this is never kept; the programs of a command take a few megabytes.
MOST_BYTES = 512 << 20
SETTINGS = {
    # Also those that compile in a moment: a command has dozens of them.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

# LLVM's third level takes two to three times as long as its second, for programs that run no faster
# (`benchmarks/start.py --levels`).
LEVEL, ENOUGH = "--xla_backend_optimization_level", 2


def compile_quickly() -> None:
    """Tell XLA, before JAX is imported, how hard to try with programs for the processor.

    Where JAX has another device it is left alone: the same flag would slow its kernels.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    platforms = os.environ.get("JAX_PLATFORMS", "")
    is_alone = platforms == "cpu" or not any(map(find_spec, ("jax_plugins", "libtpu")))
    if is_alone and LEVEL not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {LEVEL}={ENOUGH}".strip()


def compute_where_asked() -> None:
    """Tell JAX, before it computes anything, to hand no program to another thread of the processor.

    For lines that are filtered as they come: each waits for its step, and to wake a thread takes
    longer than a small one. Training has something to do meanwhile.
    """
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)


def keep_compiled() -> None:
    """Tell JAX, which must not be imported yet, where to keep its programs."""
    # What XLA says of the machine that it compiles for is not for the users of a command.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    given = os.environ.get(VARIABLE, "")
    if given == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = prepared_folder(Path(given).expanduser() if given else cache_folder() / "compiled")
    if folder is None:
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ[PROGRAMS] = str(folder)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def prepared_folder(folder: Path, most_bytes: int = MOST_BYTES) -> Path | None:
    """Return where in a folder the programs of this machine are kept, with room for new ones.

    None where the folder cannot be used, or others than its user may write there.
    """
    own = folder / _machine()
    try:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(own):
            return None
        forget_unfinished(own)
        forget_oldest(folder, most_bytes)
    except OSError:  # no room, no right: compiling anew is only slower
        return None
    return own


def forget_unfinished(folder: Path) -> None:
    """Delete programs of which a process that was killed wrote only a part.

    JAX would try to read them at each start, warn, and never write them again. What was found whole
    once has a mark, and is not looked at again.
    """
    for path in folder.iterdir():
        mark = path.with_name(path.name + WHOLE)
        if path.suffix == WHOLE or not path.is_file() or mark.exists():
            continue
        if _is_whole(path.read_bytes()):
            mark.touch()
        else:
            path.unlink(missing_ok=True)


def forget_oldest(folder: Path, most_bytes: int) -> None:
    """Delete the programs that were not used for the longest time, until the rest is small."""
    found = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    excess = sum(each.st_size for _, each in found) - most_bytes
    for path, each in sorted(found, key=lambda pair: max(pair[1].st_atime, pair[1].st_mtime)):
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= each.st_size


def _is_whole(content: bytes) -> bool:
    """Whether a program can be unpacked, as JAX packs them: by zstandard where that is there."""
    unpack = zlib.decompress
    if content.startswith(ZSTANDARD):
        try:
            unpack = import_module("zstandard").ZstdDecompressor().decompress
        except ImportError:  # JAX will see for itself
            return True
    try:
        unpack(content)
    except Exception:  # whatever the library raises, it is only a program to be compiled anew
        return False
    return True


def _machine() -> str:
    """The name of the folder of programs for this version, this Python and this processor.

    A home folder may be shared by machines whose processors do not have the same instructions.
    """
    parts = [platform.machine(), platform.python_version(), *map(_version, ("jax", "jaxlib"))]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        parts += sorted({line for line in lines if line.startswith(("flags", "model name"))})
    except OSError:
        parts.append(platform.processor())
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return f"jax-{_version('jax')}-{digest}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _is_own(folder: Path) -> bool:
    """Whether nobody else can put a program there for this user to run."""
    if not hasattr(os, "getuid"):
        return True
    facts = folder.stat()
    return facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
