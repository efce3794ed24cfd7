"""How fast batches come, beside the training step that uses them up.

    pip install 'varfilter[audio,video]'
    python benchmarks/data.py [--quick] [--json FILE] [SET ...]

For each data set, at the paper's batch sizes and lengths, it prints how many batches a second
each loader gives: random windows cut on the device; the same read ahead from a memory map by
1, 2 and 4 workers, and by 2 through the first epoch of a cold file, of which the system holds
nothing in memory; fixed windows; whole sequences. Beside them stands the time of one training
update at the paper's full size on this machine, AVF's or the baseline's, whichever is shorter.
A batch of video has 20 clips, but the update is measured on 2 of them, for it needs much
memory: one of 20 takes still longer.

The exit code is 1 if any loader is slower than the update. The real data are looked for in the
folder VARFILTER_DATA, or in `shared/data` beside the checkout; sets that are absent are left
out. `--quick` takes few batches and one tiny network for all, to see that it works; it judges
no speed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import varfilter as vf
from varfilter.data import (
    Batch,
    Dataset,
    Ragged,
    RandomWindows,
    consecutive_windows,
    prefetched,
    whole_sequences,
)
from varfilter.data.rolls import read_rolls
from varfilter.data.sets.timit import timit_sample
from varfilter.data.sets.videos import weizmann
from varfilter.data.tables.read import read_table
from varfilter.experiments import AVF

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))
KEY = jax.random.key(0)
Source = Callable[[], Iterator[Batch]]
COLUMNS = [
    ("loader", "loader", "{}"),
    ("batch", "shape", "{}"),
    ("batches/s", "batches_per_second", "{:,.0f}"),
    ("batch, ms", "batch_ms", "{:.2f}"),
    ("update/batch", "ratio", "{:,.0f}"),
]


@dataclass(frozen=True)
class Subject:
    """A data set and what is trained on it; `preset` None: a small model of a table."""

    read: Callable[[], Dataset]
    num_steps: int
    batch_size: int
    preset: str | None
    is_mapped: bool = False


SUBJECTS = {
    "jsb_chorales": Subject(
        lambda: read_rolls(DATA / "music" / "jsb_chorales.npz"), 25, 16, "srnn-music"
    ),
    "nottingham": Subject(
        lambda: read_rolls(DATA / "music" / "nottingham.npz"), 25, 16, "srnn-music"
    ),
    "timit-sample": Subject(
        lambda: timit_sample(DATA / "speech" / "timit_sample"), 40, 64, "vrnn-timit", True
    ),
    "weizmann": Subject(lambda: weizmann(DATA / "video" / "weizmann"), 21, 20, "svg-kth", True),
    "table": Subject(lambda: sensors(), 50, 32, None),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.sets) - set(SUBJECTS):
        parser.error(f"unknown SET {', '.join(sorted(unknown))}; choose of {', '.join(SUBJECTS)}")

    console = Console()
    rows: list[dict[str, Any]] = []
    updates: dict[str | None, dict[str, Any]] = {}
    for name in arguments.sets or SUBJECTS:
        subject = SUBJECTS[name]
        preset = None if arguments.quick else subject.preset
        with console.status(f"measuring {name} ..."):
            try:
                dataset = subject.read()
            except (FileNotFoundError, ImportError) as error:
                console.print(f"{name} is left out: {error}", highlight=False, soft_wrap=True)
                continue
            if preset not in updates:
                updates[preset] = update(preset, quick=arguments.quick)
            found = updates[preset]
            own = [
                {"set": name} | row | found | {"ratio": found["update_ms"] / row["batch_ms"]}
                for row in loaders(dataset, subject, quick=arguments.quick)
            ]
        console.print(shown(name, own))
        rows += own
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
        console.print(f"Wrote {arguments.json}.")
    slow = [f"{row['set']}, {row['loader']}" for row in rows if row["ratio"] <= 1.0]
    if slow and not arguments.quick:
        sys.exit(f"Slower than the update: {'; '.join(slow)}.")


def loaders(dataset: Dataset, subject: Subject, *, quick: bool) -> Iterator[dict[str, Any]]:
    """The time of a batch from each loader of the set."""
    sizes = subject.num_steps, subject.batch_size
    windows = RandomWindows(dataset, *sizes)

    def row(loader: str, batches: Source, count: int = 3 if quick else 50) -> dict[str, Any]:
        milliseconds, shape = timed(batches, count)
        return {
            "loader": loader,
            "shape": "x".join(map(str, shape)),
            "num_batches": count,
            "batch_ms": milliseconds,
            "batches_per_second": 1e3 / milliseconds,
        }

    # Made anew in every pass: `itertools.cycle` would keep them and measure nothing.
    def fixed() -> Iterator[Batch]:
        while True:
            yield from consecutive_windows(dataset, *sizes)

    def whole() -> Iterator[Batch]:
        while True:
            yield from (batch for _, batch in whole_sequences(dataset, subject.batch_size))

    yield row("windows on the device", lambda: (windows.windows(i, KEY) for i in count_up()))
    if subject.is_mapped:
        with tempfile.TemporaryDirectory() as folder:
            dataset.train.save(folder)

            def mapped(num_workers: int) -> Iterator[Batch]:
                on_disk = replace(dataset, train=Ragged.open(folder), names={})
                source = RandomWindows(on_disk, *sizes, on_device=False)
                return prefetched(source, KEY, num_workers=num_workers)

            def cold() -> Iterator[Batch]:
                forget(Path(folder) / "values.npy")
                return mapped(2)

            for num_workers in (1, 2, 4):
                workers = "1 worker" if num_workers == 1 else f"{num_workers} workers"
                yield row(f"mapped, {workers}", lambda n=num_workers: mapped(n))
            if hasattr(os, "posix_fadvise"):
                # One epoch: these files are so small that the next would find all in memory.
                yield row("mapped, 2, cold", cold, windows.num_batches)
    yield row("fixed windows", fixed)
    yield row("whole sequences", whole)


def timed(batches: Source, count: int, num_rounds: int = 5) -> tuple[float, tuple[int, ...]]:
    """(milliseconds a batch, the shape of the last): the median of some rounds.

    The clock starts before anything is read, and stops when the last batch is on the device;
    the caller does nothing meanwhile. Programs are compiled before.
    """
    seconds, shape = [], ()
    for number in range(num_rounds + 1):
        source = batches()
        begin = time.perf_counter()
        for batch in islice(source, count):
            shape = jax.block_until_ready(batch).xs.shape
        if number > 0:
            seconds.append((time.perf_counter() - begin) / count)
        # Gone before the next round begins: what is still mapped cannot be forgotten.
        del source
    return 1e3 * statistics.median(seconds), shape


def forget(path: Path) -> None:
    """Have the system drop what it keeps of the file in memory, if nobody has it mapped."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def update(preset: str | None, *, quick: bool) -> dict[str, Any]:
    """The time of a training update, of what, and how many sequences it had."""
    if preset is None:
        milliseconds = table_update(quick=quick)
        size = SUBJECTS["table"].batch_size
        return {"model": "DeepMarkov", "update_ms": milliseconds, "update_batch": size}
    # In a process of its own, which gives its memory back.
    command = [sys.executable, str(ROOT / "benchmarks" / "models.py"), preset, "--one"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{preset} failed:\n{done.stderr}")
    found = json.loads(done.stdout)
    seconds = min(found["avf_seconds"], found["baseline_seconds"])
    return {"model": preset, "update_ms": 1e3 * seconds, "update_batch": found["batch"]}


def sensors() -> Dataset:
    """A table of 100 machines with eight sensors, some readings of which are lost."""
    random = np.random.default_rng(0)
    values = np.cumsum(random.normal(size=(100, 1000, 8)), axis=1)
    values[random.random(values.shape) < 0.05] = np.nan
    return read_table(values)


def table_update(*, quick: bool) -> float:
    """Milliseconds of an update of a small model of the table, the median of a few."""
    dataset = sensors()
    sizes = {"hidden_size": 4, "num_layers": 1} if quick else {}
    model = vf.DeepMarkov(8, 4, **sizes, key=KEY)
    inference = vf.Prior() if quick else AVF().build(model, KEY)
    adam = optax.adam(1e-4)
    learner = vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=1)
    state = learner.init(model, vf.VariationalFilter(inference))
    subject = SUBJECTS["table"]
    xs = RandomWindows(dataset, subject.num_steps, subject.batch_size).windows(0, KEY).xs
    seconds = []
    for _ in range(2 if quick else 10):
        begin = time.perf_counter()
        state, metrics = learner.update(state, xs, KEY)
        jax.block_until_ready(metrics.free_energy)
        seconds.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(seconds[1:])


def shown(name: str, rows: list[dict[str, Any]]) -> Table:
    """All loaders of one set."""
    first = rows[0]
    title = f"{name}: an update of {first['model']} on {first['update_batch']} sequences takes"
    result = Table(title=f"{title} {first['update_ms']:,.0f} ms", title_justify="left")
    for column, name, _ in COLUMNS:
        result.add_column(column, justify="left" if name == "loader" else "right")
    for row in rows:
        result.add_row(*(shape.format(row[name]) for _, name, shape in COLUMNS))
    return result


if __name__ == "__main__":
    main()
