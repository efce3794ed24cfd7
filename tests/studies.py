"""Made-up cells of a study, in the files of `benchmarks/study.py`."""

import json

import numpy as np

SONGS, SEEDS = 400, 60


def write_cell(folder, name, nats, *, songs=None, stopped="all 5 epochs are done"):
    """The files that `benchmarks/study.py` leaves of a cell with these scores."""
    songs = list(range(nats.shape[1])) if songs is None else songs
    members = []
    for seed, row in enumerate(nats):
        place = folder / name / f"seed-{seed}"
        place.mkdir(parents=True)
        scores = {"nats": row.mean(), "songs": songs, "nats_by_song": row.tolist()}
        (place / "test.json").write_text(json.dumps(scores))
        members.append({"folder": place.name, "seed": seed, "epoch": 3.0, "stopped": stopped})
    record = {"name": name, "part": "test", "members": members}
    (folder / name / "cell.json").write_text(json.dumps(record))


def drawn(rng, effect, *, seed_std=0.03, noise=0.02):
    """Scores of songs that differ much, with what a seed and a song by a seed add."""
    songs = np.random.default_rng(0).normal(7.0, 0.7, SONGS)
    seeds = rng.normal(0.0, seed_std, (SEEDS, 1))
    return effect + songs + seeds + rng.normal(0.0, noise, (SEEDS, SONGS))
