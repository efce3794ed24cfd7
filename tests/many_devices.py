"""Trains the same small models on several numbers of devices; `test_devices.py` compares.

python many_devices.py FOLDER NAME...   each NAME a run of `RUNS`; connects where JAX_PROCESS_ID is.
"""

import os
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import optax

import varfilter as vf
from varfilter import devices
from varfilter.checkpoint import Checkpoint, keep_checkpoint
from varfilter.data import Dataset, Family, Ragged, RandomWindows, Scaling
from varfilter.train import fit

if __name__ == "__main__" and "JAX_PROCESS_ID" in os.environ:
    devices.connect(timeout=60)

from worlds import KEY, baseline, srnn, vector  # which computes, and so comes after

BATCH_SIZE, NUM_STEPS, NUM_UPDATES = 8, 5, 20
# name: (learner, whether the data lie on the device, how many devices; 0: the plain program)
RUNS = {
    "one": ("avf", True, 0),
    "two": ("avf", True, 2),
    "four": ("avf", True, 4),
    "four from host": ("avf", False, 4),
    "end to end on one": ("end to end", True, 0),
    "end to end on two": ("end to end", True, 2),
}


def begun(kind):
    model, adam = srnn(), optax.adam(1e-2)
    if kind == "end to end":
        learner = vf.EndToEnd(theta=adam, phi=adam)
        return learner, learner.init(model, vf.VariationalFilter(baseline(model)))
    # Two steps of φ, each on a slice that takes problems from all devices.
    learner = vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=2)
    inference = vf.Iterative(model, hidden_size=8, key=jax.random.key(5))
    return learner, learner.init(model, vf.VariationalFilter(inference))


def windows(on_device):
    """Rolls of notes with gaps, in sequences of several lengths."""
    random = np.random.default_rng(0)
    rows = [(random.random((n, 4)) < 0.3).astype(np.float32) for n in (9, 7, 12, 30, 8, 6, 7, 9, 11)]
    rows[3][4:7, 1] = np.nan
    ragged = Ragged.of(rows)
    dataset = Dataset("rolls", ragged, ragged, ragged, Family(vf.Bernoulli), Scaling(0.0, 1.0))
    return RandomWindows(dataset, NUM_STEPS, BATCH_SIZE, on_device=on_device)


def run(folder, name):
    kind, on_device, num_devices = RUNS[name]
    learner, learning = begun(kind)
    if not devices.is_first_process():  # as where a process has found no checkpoint
        learning = jax.tree.map(lambda leaf: leaf * 0 if hasattr(leaf, "dtype") else leaf, learning)
    mesh = devices.device_mesh(BATCH_SIZE, jax.devices()[:num_devices]) if num_devices else None
    free_energies = []
    options = {"num_updates": NUM_UPDATES, "updates_per_dispatch": 7, "devices": mesh}
    for progress in fit(learner, learning, windows(on_device), KEY, **options):
        free_energies += progress.metrics.free_energy.tolist()
        if devices.is_first_process():
            checkpoint = Checkpoint(progress.learning, progress.num_updates, {})
            keep_checkpoint(folder / name, checkpoint)
    learned = progress.learning
    np.savez(
        folder / f"{name} {jax.process_index()}.npz",
        free_energies=free_energies,
        parameters=vector((learned.model, learned.filter)),
    )


if __name__ == "__main__":
    warnings.simplefilter("error")
    for name in sys.argv[2:]:
        run(Path(sys.argv[1]), name)
