"""Tiny experiments on each medium, and small made-up data for them."""

import dataclasses

import numpy as np

from varfilter.data import Dataset, Family, Ragged, Scaling
from varfilter.distributions import Bernoulli, DiscretizedNormal
from varfilter.experiments import (
    AVF,
    Adam,
    FilterChoice,
    Optimizers,
    Schedule,
    SRNNSizes,
    SVGSizes,
    TableSizes,
    experiment_named,
    own_experiment,
)
from varfilter.media import load, source_of
from varfilter.runs import Trained

SRNN = SRNNSizes(
    latent_size=3, recurrent_size=4, prior_size=4, decoder_size=4, num_decoder_layers=1
)
SVG = SVGSizes(
    latent_size=3, code_size=4, recurrent_size=4, channels=(4,), convolutions=(2,), std=0.1
)
ADAM = Adam(1e-2)
TINY = {
    "filter": FilterChoice(AVF(hidden_size=4, num_layers=1)),
    "optimizer": Optimizers(ADAM, ADAM, num_phi_steps=2),
    # With `epochs_per_validation`, nothing depends on what is measured.
    "schedule": Schedule(
        num_epochs=4, batch_size=4, num_steps=6, windows_per_epoch=4, epochs_per_validation=1
    ),
}
MEDIA = ("music", "sound", "video", "table")


def splits(sequences):
    """Six sequences of twelve to learn from, two to validate, four to test."""
    return (Ragged.of(sequences[:6]), Ragged.of(sequences[6:8]), Ragged.of(sequences[8:12]))


def chorales():
    """Songs of four voices that wander up and down."""
    rng = np.random.default_rng(0)
    songs = np.zeros((12, 24, 88), np.uint8)
    for song in songs:
        steps = np.cumsum(rng.integers(-2, 3, (24, 4)), 0)
        voices = np.clip(np.array([30, 37, 42, 49]) + steps, 0, 87)
        song[np.arange(24)[:, None], voices] = 1
    return Dataset("jsb", *splits(songs), Family(Bernoulli), medium="music")


def sentences():
    """Sound of 16 bits: silence, then a tone that swells and fades."""
    rng = np.random.default_rng(0)
    time = np.arange(24 * 200) / 16000
    swell = np.sin(np.pi * np.clip(time / 0.3, 0, 1)) ** 2
    pitches = rng.uniform(100, 300, 12)
    tones = [3000 * swell * np.sin(2 * np.pi * pitch * time) for pitch in pitches]
    noisy = [np.rint(tone + rng.normal(0, 20, len(time))).astype(np.int16) for tone in tones]
    family = Family(DiscretizedNormal, width=1 / 900)
    return Dataset(
        "timit-sample", *splits(noisy), family, Scaling(0.0, 900.0),
        rows_per_step=200, rate=16000, medium="sound",
    )  # fmt: skip


def videos():
    """A bright spot that goes round, in frames of 8 by 8 pixels."""
    rng = np.random.default_rng(0)
    turn = rng.uniform(0, 6, (12, 1)) + np.arange(24) / 4
    x, y = 3.5 + 2 * np.cos(turn), 3.5 + 2 * np.sin(turn)
    grid = np.arange(8)
    square = (grid - x[..., None, None]) ** 2 + (grid[:, None] - y[..., None, None]) ** 2
    frames = np.rint(255 * np.exp(-square / 3)).astype(np.uint8)[:, :, None]
    family = Family(DiscretizedNormal, width=1 / 255, low=0.0, high=1.0)
    return Dataset(
        "weizmann", *splits(frames), family, Scaling(0.0, 255.0), rate=25, medium="video"
    )


def readings(folder):
    """A table of a numeric and a binary column, with gaps and a value that nobody expects."""
    rng = np.random.default_rng(0)
    # A name that HTML and the pictures' own markup would take for something else.
    lines = ["pump,heat < $x$ & y,valve"]
    for pump in range(20):
        heat = 20 + 5 * np.sin(np.arange(40) / 5.0 + pump) + 0.2 * rng.normal(size=40)
        heat[30] += 100.0
        for t, value in enumerate(heat):
            seen = "" if 10 <= t < 14 else f"{value:.4f}"
            lines.append(f"p{pump},{seen},{int(value > 21)}")
    path = folder / "readings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny(medium, folder):
    """(a small experiment, its data) of a medium."""
    if medium == "table":
        source = dataclasses.replace(source_of(readings(folder)), sequence="pump")
        sizes = TableSizes(latent_size=3, hidden_size=4)
        # Of one member, like the others: `tests/runs/test_members.py` has those of several.
        own = dataclasses.replace(own_experiment(source), model=sizes, num_members=1, **TINY)
        return own, load(source)
    name, model, dataset = {
        "music": ("srnn-jsb-avf", SRNN, chorales()),
        "sound": ("srnn-timit-sample-avf", SRNN, sentences()),
        "video": ("svg-weizmann-avf", SVG, videos()),
    }[medium]
    return dataclasses.replace(experiment_named(name), model=model, **TINY), dataset


def keep_untrained(run):
    """Keep a run as if it had been trained: updates are compiled, and tested, elsewhere."""
    model, filter, _ = run.experiment.build(run.dataset)
    run.keep_best(Trained(model, filter, 2, 300.0))
    for step in (1, 2):
        line = {"step": step, "epoch": step / 2, "seconds": 1.0 * step, "kl_weight": 1.0}
        train = {"free_energy": 310.0 - step, "kl": 2.0, "reconstruction": 308.0 - step}
        train |= {"theta_gradient_norm": 5.0 / step, "phi_gradient_norm": 50.0 / step**8}
        run.append_metrics({**line, "train": train, "valid": {"nats": 302.0 - step}, "best": 300.0})
