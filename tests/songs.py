"""A few made-up songs, a tiny experiment on them, and what there is in the folder of its run."""

from pathlib import Path

import numpy as np

from varfilter.training.checkpoints import kept_checkpoints

NUM_STEPS, NUM_EPOCHS = 12, 40
TINY = (
    *("--model.latent-size", 4, "--model.recurrent-size", 8, "--model.prior-size", 8),
    *("--model.decoder-size", 8, "--model.num-decoder-layers", 1, "--optimizer.num-phi-steps", 2),
    *("--filter.inference.hidden-size", 8, "--filter.inference.num-layers", 1),
    *("--filter.inference.num-samples", 2),
    *("--schedule.batch-size", 8, "--schedule.num-steps", 6, "--schedule.num-epochs", NUM_EPOCHS),
    *("--schedule.annealing-epochs", 3, "--schedule.epochs-per-validation", 1),
    *("--checkpoint-seconds", 0),
)
# Two batches of eight of the sixteen songs.
LAST = 2 * NUM_EPOCHS


def write_songs(path, seed=0, num_valid_steps=NUM_STEPS):
    """A few songs of twelve steps each, for `--data.at`; those to validate on may be longer."""
    rng, parts = np.random.default_rng(seed), {}
    for split, count in (("train", 16), ("valid", 4), ("test", 5)):
        num_steps = num_valid_steps if split == "valid" else NUM_STEPS
        rolls = np.zeros((count * num_steps, 88), np.uint8)
        rolls[np.arange(len(rolls)), rng.integers(30, 50, len(rolls))] = 1
        parts[f"{split}_rolls"] = np.packbits(rolls, axis=1)
        parts[f"{split}_lengths"] = np.full(count, num_steps)
    np.savez(path, **parts)


def as_pickle(path):
    """The songs of an .npz file as the pickles of the original sets have them."""
    with np.load(path) as file:
        rolls = {
            split: [
                [tuple(int(key) + 21 for key in np.flatnonzero(row)) for row in song]
                for song in np.split(
                    np.unpackbits(file[f"{split}_rolls"], axis=1),
                    np.cumsum(file[f"{split}_lengths"])[:-1],
                )
            ]
            for split in ("train", "valid", "test")
        }
    return rolls


def contents(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def newest(run):
    """The paths of the two newest checkpoints."""
    return [path for _, path in kept_checkpoints(run / "checkpoints")[:2]]
