"""Strict types and shapes for every test, quick compilation, and a bound on what is compiled.

Nearly all the time of these tests goes into tracing and compiling programs that run once. What one
worker has compiled the other finds in the user's folder for caches, and so do the scripts that they
start, and the next run; a process that is to be killed compiles for itself, since what it leaves
half written would be in the way of all others. `VARFILTER_TEST_PROGRAMS` names another folder: an
empty one shows how long the tests take where they never ran.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["VARFILTER_COMPILED"] = "off"  # of the commands that tests start, as users do
# The workers take it from the process that starts them.
if "XLA_FLAGS" not in os.environ:
    # Kernels made by LLVM alone compile in two thirds of the time that XLA's own emitters take; all
    # of a program in one piece in three quarters of what is left, with less than half of the maps.
    plain, whole = "--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"
    # A flag that another jaxlib does not know would end the process.
    probe = [sys.executable, "-c", "import jax; jax.devices('cpu')"]
    for flags in (f"{plain} {whole}", plain, whole, ""):
        os.environ["XLA_FLAGS"] = flags
        if not subprocess.run(probe, capture_output=True, check=False).returncode:
            break

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # XLA's remarks on the processors of kept programs

import jax
import jaxtyping
import pytest
from jaxtyping import install_import_hook

# All but the functions that take programs apart: they are called for each equation of each step, a
# hundred thousand times in some tests, and what they are given are no arrays.
ROOMS = {path.stem for path in (Path(__file__).parent.parent / "src" / "varfilter").iterdir()}
CHECKED = [f"varfilter.{room}" for room in sorted(ROOMS - {"_ahead", "__init__"})]
install_import_hook(CHECKED, "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def _folder_of_programs():
    """Where compiled programs are kept: in the folder for caches, or one that goes at the end."""
    # Imported behind the hook, so that its types are checked, too.
    from varfilter._files import cache_folder
    from varfilter.cli.compiled import prepared_folder

    kept = prepared_folder(cache_folder() / "compiled-tests", most_bytes=1 << 30)
    if kept is None:
        kept = tempfile.mkdtemp(prefix="varfilter-programs-")
        atexit.register(shutil.rmtree, kept, ignore_errors=True)
    return str(kept)


# Workers, and the scripts that are started, have that of the process that started them.
if "VARFILTER_TEST_PROGRAMS" not in os.environ:
    os.environ["VARFILTER_TEST_PROGRAMS"] = _folder_of_programs()
jax.config.update("jax_compilation_cache_dir", os.environ["VARFILTER_TEST_PROGRAMS"])
# Those that compile in a moment are the most.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Traced programs are trees of many small objects, so that Python would look for cycles among all
# that a worker holds every few seconds, for half a second each time: a tenth of the time of these
# tests. It looks less often; files that were left open are still found, at the latest at the end.
gc.set_threshold(20_000, 20, 50)

MAPS, PAGES = Path("/proc/self/maps"), Path("/proc/self/statm")
GIB = 1 << 30
# What a worker may hold before its programs go: two of them share a machine of 24 GiB with the
# processes that they start. It rises by as much as did not go.
most_held = [5 * GIB]
# How many programs were made ready for the compiler since the maps were counted.
lowered = Counter()
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: lowered.update(since=event.endswith("jaxpr_to_mlir_module_duration"))
)
# A worker takes one file after another, or one of these folders, whose files share a run.
SHARING = ("tests/cli/", "tests/report/")
# Those that take the longest come first, since a worker that takes one of them last keeps the other
# waiting.
LONGEST = (
    "test_start.py",  # and with it cli/
    "test_docs.py",
    "test_columns.py",  # and with it report/
    "test_quality.py",
    "test_applied.py",
    "test_learning.py",
    "test_real_data.py",
    "test_moving_levels.py",
    "test_examples.py",
    "test_moving_columns.py",
    "test_conformance.py",
    "test_outliers.py",
    "test_members.py",
    "test_table_inputs.py",
    "test_stream.py",
    "test_inference.py",
    "test_particles.py",
    "test_programs.py",
    "test_estimator.py",
    "test_riccati.py",
    "test_old_runs.py",
    "test_ensemble.py",
    "test_ahead.py",
    "test_drivers.py",
    "test_inputs.py",
    "test_missing_feedback.py",
    "test_paper_models.py",
    "test_validation.py",
    "test_column_kinds.py",
    "test_own_medium.py",
    "test_devices.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """No fixture is made twice: what shares it is one worker's, in the order of this file."""
    from xdist.scheduler import LoadFileScheduling

    class Whole(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return next((folder for folder in SHARING if file.startswith(folder)), file)

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Whole(config, log)


def pytest_collection_finish():
    """What was imported stays, and need not be looked through again for what can go."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    """Of `pytest -m slow`: what each test took, for the list in CONTRIBUTING.md."""
    if config.option.markexpr != "slow":
        return
    took = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid] += report.duration
    terminalreporter.section("slow tests, seconds")
    for name, seconds in took.most_common():
        terminalreporter.write_line(f"{seconds:7.1f}  {name}")


def _num_bytes_held():
    return int(PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def _bounded_number_of_programs():
    """Each compiled program holds memory, and several maps; past the kernel's 65,530 XLA crashes.

    To count the maps takes as long as a short test, so that it is done after every fifty programs,
    or tests, should JAX call that event by another name. What is needed again is read from the
    folder of programs, which is quick.
    """
    yield
    lowered["since"] += 1
    if lowered["since"] > 50 and MAPS.exists():
        lowered["since"] = 0
        is_large = _num_bytes_held() > most_held[0]
        if is_large or MAPS.read_bytes().count(b"\n") > 40_000:
            jax.clear_caches()
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed goes back to the system
            most_held[0] = max(most_held[0], _num_bytes_held() + 2 * GIB)


@pytest.fixture
def as_users_run_it():
    """Run without the type checker above, which refuses wrong types in its own words."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
