"""Small tables as users have them, for the tests of tables."""

import numpy as np

HOURS = np.datetime64("2024-03-01T00:00", "us") + np.arange(60) * np.timedelta64(1, "h")


def plant(num_rows=60):
    """A small plant's log: free text, missing places, a flag and a count."""
    rng = np.random.default_rng(1)
    warm = np.round(rng.normal(20.0, 5.0, num_rows), 3)
    warm[[3, 7]] = np.nan
    return {
        "time": HOURS[:num_rows],
        "warm": warm,
        "flow": rng.normal(size=num_rows).astype(np.float32).astype(np.float64),
        "valve": (rng.random(num_rows) < 0.4).astype(np.int64),
        "faults": rng.poisson(2.0, num_rows),
        "remark": [["ok", f"check {i}", None][i % 3] for i in range(num_rows)],
    }


def write(folder, text, name="table.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def lines(folder, *rows, name="table.csv"):
    return write(folder, "\n".join(rows) + "\n", name)


def everything(made):
    """All rows of a data set that is split by time, in order."""
    return np.concatenate([made.split(s).values for s in ("train", "valid", "test")])
