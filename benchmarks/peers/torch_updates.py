"""The peer's training update beside ours: the same free energy first, then its time."""

import os
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import torch
from measure import paced
from peers.torch_srnn import Loop, Parallel, captured, noise_of
from updates import KEY, ONE, PRESETS, Row, Subject, prepare

import varfilter as vf
from varfilter.experiments import AVF
from varfilter.learning.end_to_end import filter_batch
from varfilter.learning.state import Sequences, masked_mean

# Sums of some hundred float32 numbers in another order, an exponential and an error function of
# other libraries: some hundred roundings of 6e-8.
TOLERANCE = 1e-5
WAYS: dict[str, type[Loop] | type[Parallel]] = {"loop": Loop, "parallel": Parallel}


def measure_torch(name: str, *, quick: bool) -> Iterator[Row]:
    """Rows of one preset: eager and, where there is CUDA, the whole update in one graph.

    Jax runs on the CPU in this process, for the weights and the check alone.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    subject = prepare(PRESETS[name], quick=quick)
    apart = difference(subject, device)
    if not apart < TOLERANCE:
        raise SystemExit(f"{name}: PyTorch's free energy is {apart:.1e} from ours, relatively")
    # As XLA has it on such a device: products of float32 in TF32.
    torch.set_float32_matmul_precision("high")
    ways = ["loop", "parallel"] if PRESETS[name].one else ["parallel"]
    modes = ["eager"] if device == "cpu" else ["eager", "graph"]
    for way in ways:
        for mode in modes:
            update = built(subject, WAYS[way], device)
            launch = update if mode == "eager" else captured(update)
            spread = paced(launch, lambda _: _wait(device), seconds=0.2 if quick else 2.0)
            final = float(launch()[1])
            if final != final:
                raise SystemExit(f"{name}: PyTorch's free energy is NaN after {way}, {mode}")
            yield {
                "kind": "torch", "preset": name, "way": way, "mode": mode, **subject.size,
                "ms_per_step": spread.times(1e3 / subject.num_steps), "apart": apart,
                "torch": torch.__version__, "device": _device_name(device),
                "threads": torch.get_num_threads(), "cores": os.cpu_count(),
            }  # fmt: skip


def built(subject: Subject, way: type[Loop] | type[Parallel], device: str) -> Loop | Parallel:
    """The peer with the weights, the data and the optimizers of the subject."""
    optimizers, batch = subject.experiment.optimizer, subject.batch
    return way(
        subject.state.model, subject.state.filter.inference, batch.xs, batch.x0,
        theta=optimizers.theta, phi=optimizers.phi, num_phi_steps=optimizers.num_phi_steps,
        device=device,
    )  # fmt: skip


def difference(subject: Subject, device: str) -> float:
    """How far the free energies are apart, relatively, at the prior and at the final q.

    Same weights, same noise, products in full float32; on the first sequences of the batch.
    """
    torch.set_float32_matmul_precision("highest")
    ours, noise = free_energies(subject, num_sequences=4)
    theirs = built(subject, Loop, device)
    theirs.xs, theirs.x0 = theirs.xs[:, :4], theirs.x0[:4]
    found = theirs.free_energies(noise.to(device))
    return max(abs(a - b) / abs(a) for a, b in zip(ours, found, strict=True))


def free_energies(subject: Subject, *, num_sequences: int) -> tuple[list[float], torch.Tensor]:
    """Our mean F at the prior and at the final q, and the noise that they were drawn with."""
    batch: Sequences = jax.tree.map(lambda leaf: leaf[:num_sequences], subject.batch)
    model, filter = subject.state.model, subject.state.filter
    choice = subject.experiment.filter.inference
    assert isinstance(model, vf.SRNN)
    assert isinstance(choice, AVF)

    @eqx.filter_jit
    def ours(model: Any, filter: Any, batch: Sequences) -> Any:
        key_filter, _ = jax.random.split(KEY)  # as the learner does, for the same draws
        _, info = filter_batch(model, filter, batch, key_filter, ONE, complete=True)
        return masked_mean(info.free_energies, batch.mask)

    with jax.default_matmul_precision("highest"):
        found = ours(model, filter, batch)
    count, time = batch.mask.shape
    return found.tolist(), noise_of(KEY, count, time, model.latent_size, choice.num_samples)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"
