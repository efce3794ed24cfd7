"""`varfilter sample`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varfilter.cli.errors import refusals
from varfilter.cli.running import Number, Out, RunFolder, require_writable


@dataclass(frozen=True)
class Sample:
    """Sequences that a trained model makes up: music to hear, films to watch, tables to open.

    Music is written as .mid, sound as .wav, films as .gif, tables as .csv (or .jsonl, .parquet);
    .npz holds any. Several sequences are numbered files, or one table with a column `sequence`.

    examples:
      varfilter sample runs/srnn-jsb-avf --out tune.mid --num-steps 64
      varfilter sample runs/pumps --out pumps.csv --num-sequences 10
    """

    run: RunFolder
    """The folder of a run."""
    out: Out = None
    """The file to write (sample.mid, .wav, .gif or .csv, by the kind of the data)."""
    num_steps: Number = 100
    """Steps of each sequence."""
    num_sequences: Number = 1
    """How many sequences."""
    seed: Number = 0
    """All randomness comes from this number."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals("Give a smaller --num-steps.") as refused:
            from varfilter.outputs import ENDINGS_OF, medium
            from varfilter.runs.applied import sample_run
            from varfilter.runs.run import Run

            run = Run.load(self.run)
            data = run.table or run.dataset_like
            endings = ENDINGS_OF[medium(data)]
            out = Path(f"sample{endings[0]}") if self.out is None else self.out
            require_writable(out)
            if out.suffix.lower() not in endings:
                raise ValueError(
                    f"`--out {out}` must end in {' or '.join(endings)}, for what this run makes up"
                    f" ({medium(data)})."
                )
            xs = sample_run(run, self.num_steps, self.num_sequences, seed=self.seed)
            for path in _written(out, data, xs):
                print(path)
        return refused.code


def _written(out: Path, data: Any, xs: Any) -> list[Path]:
    import numpy as np

    from varfilter.data.tables.read import Table
    from varfilter.outputs import medium, recording_rows, write_recording, write_rows

    # Made-up times: as readable as those of the training data, and plainly none of theirs.
    is_dated = isinstance(data, Table) and data.layout.clock.is_date
    first = np.datetime64("2000-01-01T00:00:00") if is_dated else 0
    if len(xs) == 1:
        write_recording(out, data, xs[0], first=first)
        return [out]
    if medium(data) == "table":
        numbered = enumerate(xs, start=1)
        rows = (
            row for i, x in numbered for row in recording_rows(data, x, first=first, sequence=i)
        )
        write_rows(rows, out)
        return [out]
    width = len(str(len(xs)))
    paths = [out.with_name(f"{out.stem}-{i:0{width}}{out.suffix}") for i in range(1, len(xs) + 1)]
    for path, x in zip(paths, xs, strict=True):
        write_recording(path, data, x)
    return paths
