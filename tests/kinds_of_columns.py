"""A table with a column of each kind, from laws that are known."""

import numpy as np

LEVELS = ("busy", "down", "idle")
# Stays as it is nine times in ten.
STAYS = 0.9
KINDS = {
    "noise": "numeric",
    "shock": "heavy",
    "rain": "zeros",
    "share": "bounded",
    "on": "binary",
    "steps": "count",
    "faults": "events",
    "state": "categorical",
}


def one_of_each(num_rows: int = 600, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns named by what they are like; `note` is free text, and `site` never changes."""
    rng = np.random.default_rng(seed)
    state = np.zeros(num_rows, int)
    moves = rng.random(num_rows) > STAYS
    for t in range(1, num_rows):
        state[t] = (state[t - 1] + rng.integers(1, 3)) % 3 if moves[t] else state[t - 1]
    is_wet = rng.random(num_rows) < np.array([0.8, 0.2, 0.4])[state]
    mean = np.array([6.0, 1.0, 2.0])[state]
    return {
        "noise": rng.normal(size=num_rows),
        "shock": 20.0 + rng.standard_t(3.0, num_rows),
        "rain": np.where(is_wet, np.exp(rng.normal(0.0, 1.0, num_rows)), 0.0),
        "share": np.clip(0.7 + 0.3 * rng.normal(size=num_rows), 0.0, 1.0),
        "on": (state == 0).astype(float),
        "steps": np.rint(200.0 + 20.0 * rng.normal(size=num_rows)),
        "faults": rng.negative_binomial(0.8, 0.8 / (0.8 + mean)).astype(float),
        "state": np.array(LEVELS, object)[state],
        "note": np.array([f"seen by {i}" for i in range(num_rows)], object),
        "site": np.array(["north"] * num_rows, object),
    }
