"""Trains the same small models on several numbers of devices; `test_devices.py` compares.

python many_devices.py FOLDER NAME...   each NAME one of `RUNS` or `CHECKS`; connects to other
processes where JAX_PROCESS_ID is set.
"""

import os
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from varfilter import devices
from varfilter.data import Dataset, Family, Ragged, RandomWindows, Scaling
from varfilter.learning.time_parallel import _random_slices
from varfilter.training.checkpoints import Checkpoint, keep_checkpoint
from varfilter.training.updates import fit

if __name__ == "__main__" and "JAX_PROCESS_ID" in os.environ:
    devices.connect(timeout=60)
elif __name__ == "__main__":
    try:
        devices.connect()
    except ValueError as error:
        print(error)

from worlds import (
    KEY,
    assert_same_bits,
    baseline,
    observations,
    srnn,
    vector,
)  # it computes, and so comes after

BATCH_SIZE, NUM_STEPS, NUM_UPDATES = 8, 5, 20
# name: (learner, whether the data lie on the device, how many devices; 0: the plain program)
RUNS = {
    "avf, plain": ("avf", True, 0),
    "avf, 2": ("avf", True, 2),
    "avf, 4": ("avf", True, 4),
    "avf from the host, 4": ("avf", False, 4),
    "end to end, plain": ("end to end", True, 0),
    "end to end, 2": ("end to end", True, 2),
    "end to end from the host, 2": ("end to end", False, 2),
}


def begun(kind):
    # Not Adam, whose first steps are all of one length: rounding would decide on their direction
    # where a gradient is nearly zero.
    model, momentum = srnn(), optax.sgd(0.1, momentum=0.9)
    if kind == "end to end":
        learner = vf.EndToEnd(theta=momentum, phi=momentum)
        return learner, learner.init(model, vf.VariationalFilter(baseline(model)))
    # Three steps of φ, each on a slice of 11 problems from all devices, which cannot share them
    # evenly.
    learner = vf.TimeParallel(theta=momentum, phi=momentum, num_phi_steps=3)
    inference = vf.Iterative(model, hidden_size=8, num_layers=1, key=jax.random.key(5))
    return learner, learner.init(model, vf.VariationalFilter(inference))


def windows(on_device):
    """Rolls of notes with a gap, in sequences of several lengths."""
    random = np.random.default_rng(0)
    lengths = (9, 7, 12, 30, 8, 6, 7, 9, 11)
    rows = [(random.random((n, 4)) < 0.3).astype(np.float32) for n in lengths]
    rows[3][4:7, 1] = np.nan
    ragged = Ragged.of(rows)
    dataset = Dataset("rolls", ragged, ragged, ragged, Family(vf.Bernoulli), Scaling(0.0, 1.0))
    return RandomWindows(dataset, NUM_STEPS, BATCH_SIZE, on_device=on_device)


def train(folder, name):
    """Leaves what was learned, by each process, and the checkpoints of the first."""
    kind, on_device, num_devices = RUNS[name]
    learner, learning = begun(kind)
    if not devices.is_first_process():  # as if it had found an older checkpoint
        learning = jax.tree.map(
            lambda x: jnp.asarray(np.zeros_like(x)) if isinstance(x, jax.Array) else x, learning
        )
    mesh = devices.device_mesh(BATCH_SIZE, jax.devices()[:num_devices]) if num_devices else None
    free_energies = []
    options = {"num_updates": NUM_UPDATES, "updates_per_dispatch": 7, "devices": mesh}
    for progress in fit(learner, learning, windows(on_device), KEY, **options):
        free_energies += progress.metrics.free_energy.tolist()
        if devices.is_first_process():
            checkpoint = Checkpoint(progress.state, progress.num_updates, {})
            keep_checkpoint(folder / name / f"of {jax.process_index()}", checkpoint)
    learned = progress.state
    (folder / name).mkdir(exist_ok=True)
    np.savez(
        folder / name / f"learned {jax.process_index()}.npz",
        free_energies=free_energies,
        parameters=vector((learned.model, learned.filter)),
    )


def check_mesh():
    """As many of the four devices as divide the batch; work is divided where it can be."""
    assert devices.device_mesh(8).size == 4
    with pytest.warns(UserWarning, match="3 of 4 devices.*`batch_size` is 6"):
        assert devices.device_mesh(6).size == 3
    mesh = devices.device_mesh(8)
    tree = (jnp.zeros((8, 5, 3)), jax.random.split(KEY, (8, 5)))
    for num_slices, shard in ((2, (2, 5, 3)), (5, (5, 2, 3))):
        with devices.using_mesh(mesh):
            # Not the cached program of another mesh, nor of none.
            cut = jax.jit(lambda tree, n=num_slices: _random_slices(tree, n, KEY))
            values, keys = cut(devices.replicated(mesh, tree))
        assert values.addressable_data(0).shape == shard
        assert keys.addressable_data(0).shape == shard[:2]
    assert devices.spread(tree) is tree
    for whole in (tree, devices.replicated(mesh, tree)):
        values, keys = devices.own_copy(devices.replicated(mesh, whole))
        assert values.devices() == keys.devices() == {jax.devices()[0]}
        assert values.shape == (8, 5, 3)
        assert (jax.random.key_data(keys) == jax.random.key_data(tree[1])).all()


def check_processes():
    """Two processes that do not agree, or cannot share, hear of it."""
    devices.require_agreement("The seeds", 3, KEY)
    with pytest.raises(ValueError, match="The seeds differ"):
        devices.require_agreement("The seeds", jax.process_index())
    with pytest.raises(ValueError, match="2 processes cannot share evenly"):
        devices.device_mesh(7)
    mesh, batch = devices.device_mesh(BATCH_SIZE), np.arange(BATCH_SIZE * 3).reshape(-1, 3)
    own = devices.own_places(mesh, BATCH_SIZE)
    assert own == slice(4 * jax.process_index(), 4 * jax.process_index() + 4)
    whole = devices.sharded(mesh, batch[own])
    assert whole.shape == batch.shape
    for shard in whole.addressable_shards:
        np.testing.assert_array_equal(shard.data, batch[shard.index])
    tree = (jnp.full((2,), jax.process_index() + 3), jax.random.key(jax.process_index()), "name")
    number, key, name = devices.of_first_process(tree)
    assert (number.tolist(), name) == ([3, 3], "name")
    assert (jax.random.key_data(key) == jax.random.key_data(jax.random.key(0))).all()


def check_stream():
    """A stream may be computed on a device that is not the first, and gives the same bits."""
    model = srnn()
    filter, xs = vf.VariationalFilter(baseline(model)), observations(model, 4)
    first, other = vf.Stream(filter, model, KEY), vf.Stream(filter, model, KEY, device=there())
    # As if the first device were an accelerator: both are tried, and one is taken.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        measured = vf.Stream(filter, model, KEY)
    for x in xs:
        expected = first.push(x)
        for stream in (other, measured):
            assert_same_bits(stream.push(x), expected)
            assert_same_bits(stream.belief, first.belief)
    assert other.push(None).bound.devices() == {there()}
    assert {d for leaf in jax.tree.leaves(other.belief) for d in leaf.devices()} == {here()}
    first.push(None)
    assert_same_bits(other.forecast(2, num_samples=4), first.forecast(2, num_samples=4))


def here():
    return jax.devices()[0]


def there():
    return jax.devices()[1]


CHECKS = {"mesh": check_mesh, "processes": check_processes, "stream": check_stream}

if __name__ == "__main__":
    warnings.simplefilter("error")
    for name in sys.argv[2:]:
        if name in CHECKS:
            CHECKS[name]()
        else:
            train(Path(sys.argv[1]), name)
