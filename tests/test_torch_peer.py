"""The peer of `benchmarks/peers/torch_srnn.py` is the same model and learns the same."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def modules():
    """`updates` and `peers.torch_updates` as the benchmark imports them."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("updates"), importlib.import_module("peers.torch_updates")
    finally:
        sys.path.remove(str(BENCHMARKS))


# Notes with Bernoulli heads and weight decay; sound in bins, with x_t shown and clipped gradients.
@pytest.fixture(scope="module", params=["music-one", "timit-one"])
def learned(request, modules):
    """A tiny subject, its noise, and F at the prior and the final q, before and after an update."""
    updates, peer = modules
    subject = updates.prepare(updates.PRESETS[request.param], quick=True)
    batch, state, found = subject.batch, subject.state, []
    for _ in range(2):
        state, metrics = subject.learner.update(state, batch.xs, updates.KEY, x0=batch.x0)
        found.append(np.asarray(metrics.free_energies))
    latent = subject.state.model.latent_size
    noise = peer.noise_of(updates.KEY, *batch.mask.shape, latent, draws=1)
    return subject, noise, found


@pytest.mark.parametrize("way", ["loop", "parallel"])
def test_the_same_noise_gives_the_same_free_energy_before_and_after_an_update(
    way, learned, modules
):
    subject, noise, (before, after) = learned
    update = modules[1].built(subject, modules[1].WAYS[way], "cpu")
    np.testing.assert_allclose(update.free_energies(noise), before, rtol=modules[1].TOLERANCE)
    found = [float(value) for value in update(noise)]
    np.testing.assert_allclose(found, before, rtol=modules[1].TOLERANCE)
    # An update moves F by more than they may be apart: agreement says that the gradients and Adam
    # are the same.
    assert np.all(np.abs(after - before) > 5 * modules[1].TOLERANCE * np.abs(before))
    np.testing.assert_allclose(update.free_energies(noise), after, rtol=modules[1].TOLERANCE)


def test_another_noise_gives_another_free_energy(learned, modules):
    subject, noise, (before, _) = learned
    update = modules[1].built(subject, modules[1].WAYS["loop"], "cpu")
    apart = np.abs(np.array(update.free_energies(-noise)) / before - 1.0)
    assert np.all(apart > 10 * modules[1].TOLERANCE)


def test_the_check_of_the_benchmark_finds_them_equal(learned, modules):
    assert modules[1].difference(learned[0], "cpu") < modules[1].TOLERANCE
