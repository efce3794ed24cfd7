"""Strict types and shapes for every test, and no more compiled programs than a process can map.

There is no compilation cache: writing one aborts the process now and then in jaxlib 0.10.
"""

import os
from pathlib import Path

# Nearly all the time of these tests goes into compiling programs that run once, here and in the
# commands they start. (The demo runs as its users run it.)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("varfilter", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

MAPS = Path("/proc/self/maps")
# The files that take longest, by what a quiet machine with two cores needs.
LONGEST = (
    "test_report.py",
    "test_train_command.py",
    "test_conformance.py",
    "test_docs.py",
    "test_learning.py",
    "test_particle_conformance.py",
    "test_variational_conformance.py",
    "test_examples.py",
    "test_devices.py",
    "test_training.py",
    "test_real_data.py",
    "test_online.py",
)


def pytest_collection_modifyitems(items):
    """The longest files first: a worker that takes one of them last keeps the other waiting."""
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.fixture(autouse=True)
def _bounded_number_of_programs():
    """Each compiled program holds several memory maps; past the kernel's 65,530 XLA crashes."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()
