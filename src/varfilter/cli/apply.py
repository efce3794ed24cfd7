"""`varfilter filter` and `forecast`: a trained run at work on new data."""

import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

from varfilter._text import count, in_options, pasteable, say, tell
from varfilter.cli.exits import naming, refusals
from varfilter.cli.options import (
    Command,
    Format,
    Input,
    Levels,
    Number,
    Out,
    Particles,
    RunFolder,
    TableFile,
    named,
    require_place,
)

SMALLER = "Give a smaller --num-particles or --num-samples."


class AppliedCommand(Command):
    """A command that applies a run to data."""

    def given(self, *names: str) -> list[str]:
        """Return the names of the options that differ from their defaults."""
        usual = {field.name: field.default for field in fields(cast(Any, self))}
        return [name for name in names if getattr(self, name) != usual[name]]

    def flags(self) -> dict[str, str]:
        """The options, and what the readers of new data call their place."""
        return super().flags() | dict.fromkeys(("source", "path", "folder"), "INPUT")


@dataclass(frozen=True)
class Filter(AppliedCommand):
    """Filter new data with a trained run: the prediction of each step, and how surprising it was.

    INPUT is of the kind the run was trained on: a table, a MIDI file or rolls, a sound file, a
    video or a folder of images; or a folder of such files. It is read with the run's scaling and
    rate; the training data need not be there. The first step of a sequence is given, and has no
    prediction. The rows of a table come back one by one, in its order.

    Many weighted trajectories are carried, each inferred as in training, and predictions, bands,
    surprise and latents are of all of them: one sampled past is overconfident, since it holds one
    guess of all that was not seen for a fact.

    Of a table, the surprise of each column by itself is told too, and how rare such a step is:
    p_value, the probability that a healthy one is as surprising; alarm, 1 where that is at most
    --alarm-rate; alarm_cause, which columns caused it and what was expected of them. They are set
    once, by the validation part of the run's data, and kept in its folder. Surprise is in nats, of
    columns in standardised units (less their mean in training, by their spread there): a column
    counts the same in metres and in millimetres. A row that lost a value to a later one on its step
    has no surprise.

    INPUT - is for tables as they come: a JSON object a line on standard input, with the names of
    the columns; null or absent is missing. The columns of time and sequence may be there. A row
    goes out before the next line is waited for, and its prediction was made before its line came.
    A bad line is reported and left out; that there were such, the exit code 2 at the end says.

    With --out in a format of the medium (.mid, .wav, .gif) the predictions are written to be heard
    or watched: the mean of each step before it was seen, and of music as many of the most probable
    keys as are expected to sound. Values of more than 100 numbers, as the predictions of sound and
    video are, have no place in the columns of .csv and .parquet, and are left out there.

    examples:
      varfilter filter runs/pumps new.csv --out filtered.csv
      varfilter filter runs/srnn-jsb-avf song.mid --out song.jsonl --latents
      varfilter filter runs/srnn-jsb-avf song.mid --out expected.mid
      tail -f readings.jsonl | varfilter filter runs/pumps - --levels 0.05 0.95
    """

    run: RunFolder
    """The folder of a run."""
    input: Input
    """The data to filter; - for JSON lines on standard input."""
    out: Out = None
    """.jsonl, .csv, .parquet, .npz, or a format of the medium (JSON lines to standard output)."""
    format: Format = None
    """The format, whatever the ending of FILE; to standard output jsonl or csv."""
    latents: bool = False
    """Add the mean and the spread of the latents to each row."""
    seed: Number = 0
    """All randomness comes from this number."""
    num_particles: Particles = None
    """Trajectories (256 for tables, 32 for sound, 16 for music, 8 for video); 1 is the paper's
    filter."""
    spread: Annotated[float | None, named("X")] = None
    """How much wider the prior of each step is than it was learned (1.1 for tables, 1 for others
    and for one trajectory)."""
    num_samples: Annotated[int | None, named("N")] = None
    """Draws of the latent for each prediction (128; 16 for video)."""
    levels: Levels = ()
    """Add these quantiles of the prediction, such as 0.05 0.95."""
    alarm_rate: Annotated[float | None, named("P")] = None
    """The part of healthy steps of a table that may raise an alarm (0.001); 0 for no alarms."""
    fill_gaps: bool = False
    """Add a row for each step without one; those of a table then come by sequence and time."""
    longest_gap: Annotated[int | None, named("N")] = None
    """Steps between two lines of standard input that are filtered through (1000)."""
    stop_on_bad_line: bool = False
    """End at a bad line of standard input."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals(SMALLER, self.flags) as refused:
            from varfilter.runs.alarms import with_alarms
            from varfilter.runs.applied import apply_run
            from varfilter.runs.predictions import expected_steps, filter_data

            run, output = _opened(self.run, self.out, self.format, needs_all=False)
            options = {
                "seed": self.seed,
                "num_particles": self.num_particles,
                "spread": self.spread,
                "num_samples": self.num_samples,
            }
            _require_quantiles(self, run)
            _require_lines(self, run, output)
            # To ask for no alarms means the same everywhere.
            _require_columns(self, run, "fill_gaps", *(["alarm_rate"] if self.alarm_rate else []))
            if output.is_recording:
                _require_rows(self, "latents", "levels", "fill_gaps", "alarm_rate")
                output.write_recordings(run, expected_steps(run, self.input, **options))
                tell(
                    "What was expected of each step before it was seen; the first is as it was"
                    " given."
                )
                return refused.code
            options |= {
                "levels": self.levels,
                "latents": self.latents,
                "fill_gaps": self.fill_gaps,
            }
            if self.input == "-":
                live = _live(self, with_alarms(run, apply_run(run, **options), self.alarm_rate))
                output.write(live.rows(sys.stdin.buffer))
                return _code_after(live)
            output.write(filter_data(run, self.input, alarm_rate=self.alarm_rate, **options))
        return refused.code


@dataclass(frozen=True)
class Forecast(AppliedCommand):
    """How data may go on: mean and quantiles of each step ahead, with a trained run.

    INPUT is as for `varfilter filter`; each of its sequences is filtered to its end, with as many
    trajectories, and the futures begin there. With INPUT - the lines are read until there are no
    more.

    A run with columns that are known beforehand (--data.inputs of `varfilter train`) is asked what
    happens if they go on so: --inputs is a table that has them for the steps to come; without it,
    rows at the end of INPUT that hold nothing else are the steps to come.

    The futures of a table are pooled with what takes no deep model: the last value, that of a
    season before, a linear state-space model. What each of them weighs, by column and steps ahead,
    the validation part of the run's data has said; --no-pool leaves them out.

    With --out in a format of the medium (.mid, .wav, .gif) the mean over all futures is written,
    to be heard or watched. The more these differ the less it moves: of music it is the keys that
    are probable at each step, and tends to stand still. `varfilter sample RUN --start INPUT
    --only-new` has one future as it may be.

    examples:
      varfilter forecast runs/pumps new.csv --horizon 24
      varfilter forecast runs/pumps new.csv --horizon 24 --inputs plan.csv
      varfilter forecast runs/pumps new.csv --horizon 24 --out ahead.csv
      varfilter forecast runs/srnn-jsb-avf song.mid --horizon 16 --out ahead.mid
    """

    run: RunFolder
    """The folder of a run."""
    input: Input
    """The data to go on from; - for JSON lines on standard input."""
    horizon: Annotated[int, tyro.conf.arg(metavar="H")]
    """How many steps ahead."""
    inputs: TableFile = None
    """A table of the known inputs of the steps ahead, of a run that has any."""
    levels: Levels = (0.05, 0.5, 0.95)
    """The quantiles to give."""
    num_particles: Particles = None
    """Trajectories (256 for tables, 32 for sound, 16 for music, 8 for video); 1 is the paper's
    filter."""
    spread: Annotated[float | None, named("X")] = None
    """How much wider the prior of each step is than it was learned (1.1 for tables, 1 for others
    and for one trajectory)."""
    num_samples: Number = 256
    """How many futures to draw."""
    pool: bool = True
    """Pool the futures of a table with its references; else they are the model's alone."""
    out: Out = None
    """.jsonl, .csv, .parquet, .npz, or a format of the medium (JSON lines to standard output)."""
    format: Format = None
    """The format, whatever the ending of FILE; to standard output jsonl or csv."""
    seed: Number = 0
    """All randomness comes from this number."""
    longest_gap: Annotated[int | None, named("N")] = None
    """Steps between two lines of standard input that are filtered through (1000)."""
    stop_on_bad_line: bool = False
    """End at a bad line of standard input, without a forecast."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        smaller = "Give a smaller --num-particles, --num-samples or --horizon."
        with refusals(smaller, self.flags) as refused:
            from varfilter._arguments import require_positive
            from varfilter.prediction import require_levels
            from varfilter.runs.applied import apply_run
            from varfilter.runs.forecasting import with_pool
            from varfilter.runs.metrics import verdict
            from varfilter.runs.predictions import expected_ahead, forecast_data

            require_positive("--horizon", self.horizon)
            run, output = _opened(self.run, self.out, self.format, needs_all=True)
            options = {
                "seed": self.seed,
                "num_particles": self.num_particles,
                "spread": self.spread,
                "num_samples": self.num_samples,
            }
            _require_quantiles(self, run)
            _require_lines(self, run, output)
            if not (self.pool or run.medium.has_column_references):
                raise ValueError(
                    "`--no-pool` leaves out the references of a table, and this run was trained on"
                    f" {run.medium.plural}, whose forecasts are the model's alone. Leave it out."
                )
            if output.is_recording:
                _require_rows(self, "levels")
                found = expected_ahead(run, self.input, self.horizon, inputs=self.inputs, **options)
                output.write_recordings(run, found)
                tell(
                    f"The mean over {count(self.num_samples, 'future')}, which stands rather still"
                    " where these differ; for one as it may be:"
                    f" {pasteable('varfilter', 'sample', str(self.run), '--start', self.input)}"
                    f" --only-new --num-steps {self.horizon}"
                )
                return refused.code
            options["levels"] = require_levels(self.levels)
            if self.input == "-":
                if (naive := verdict(run)) is not None:
                    warnings.warn(naive, stacklevel=2)
                applied = apply_run(run, **options)
                live = _live(self, with_pool(run, applied) if self.pool else applied)
                output.write(live.forecast_rows(sys.stdin.buffer, self.horizon, self.inputs))
                if not (live.num_lines or live.interrupted):
                    tell("No line came on standard input, so that there is nothing to forecast.")
                    return 2
                return _code_after(live)
            output.write(
                forecast_data(
                    run, self.input, self.horizon, inputs=self.inputs, pool=self.pool, **options
                )
            )
        return refused.code


@dataclass(frozen=True)
class Output:
    """The place that rows are written to; the `ending` says the format.

    Where `leaves_out`, values that have no place in it are not written.
    """

    out: Path | None
    ending: str
    is_recording: bool
    leaves_out: bool

    def write(self, rows: Iterable[Any]) -> None:
        """Write rows to the file, and say so; or to standard output."""
        from varfilter.media import write_rows
        from varfilter.media.formats import without_wide

        num_rows = 0

        def counted() -> Iterator[Any]:
            nonlocal num_rows
            for row in rows:
                num_rows += 1
                yield row

        kept = without_wide(counted()) if self.leaves_out else counted()
        write_rows(kept, self.out, ending=self.ending)
        if self.out is not None:
            left_out = ""
            if self.leaves_out:
                left_out = (
                    f"; the predictions, of too many numbers for the columns of {self.ending}, are"
                    " left out"
                )
            tell(f"{count(num_rows, 'row')} written to {self.out}{left_out}")

    def write_recordings(self, run: Any, samples: Iterable[Any]) -> None:
        """Write what is expected as recordings, and say where they are."""
        from varfilter.media import write_samples

        assert self.out is not None
        found = list(samples)
        paths = write_samples(
            self.out,
            run.template,
            [each.xs for each in found],
            [each.times for each in found],
            schemas=[each.schema for each in found],
        )
        say(*paths)
        if len(paths) == len(found) > 1:  # numbered files, which do not say of what they are
            tell(*(f"{path}: {each.name}" for path, each in zip(paths, found, strict=True)))


def _opened(
    folder: Path, out: Path | None, format: str | None, *, needs_all: bool
) -> tuple[Any, Output]:
    """Load the run in a folder, after refusing an `out` that cannot hold what it gives.

    Where not all of a row is needed, formats that have no place for some of it hold the rest.
    """
    from varfilter.media.formats import ENDINGS, MOST_ELEMENTS, NARROW, require_ending
    from varfilter.runs.run import Run

    require_place(out)
    ending = None if format is None else f".{format}"
    if out is None and ending in (".parquet", ".npz"):
        raise ValueError(f"`--format {format}` is for files: give --out FILE, too.")
    run = Run.load(folder)
    own = [each for each in run.medium.endings if each not in ENDINGS]
    if out is not None and ending is None and out.suffix.lower() in own:
        return run, Output(out, out.suffix.lower(), is_recording=True, leaves_out=False)
    size = run.medium.cell_size(run.template)
    if out is None:
        ending = ending or ".jsonl"
    with naming(path="--out"):
        ending = require_ending(
            out or Path(f"rows{ending}"),
            num_elements=size if needs_all else 1,
            ending=ending,
            others=own,
        )
    is_wide = size > MOST_ELEMENTS and ending in NARROW
    return run, Output(out, ending, is_recording=False, leaves_out=is_wide)


def _require_rows(command: Filter | Forecast, *names: str) -> None:
    """Refuse options that say what rows have, where recordings are written."""
    for name in command.given(*names):
        raise ValueError(
            f"`{name}` says what rows have, and `out` is a recording, which has none. Give an"
            " `out` that ends in .jsonl, .csv, .parquet or .npz, or leave it out."
        )


def _require_lines(command: Filter | Forecast, run: Any, output: "Output") -> None:
    """Refuse options of standard input where a file is read, and lines of what has none."""
    if command.input == "-":
        if output.is_recording:
            run.medium.lines(run.template)  # it says why there are none
        return
    for name in command.given("longest_gap", "stop_on_bad_line"):
        raise ValueError(
            f"`{name}` is for lines on standard input, and `INPUT` is {command.input!r}. Leave it"
            " out, or give - for INPUT."
        )


def _require_columns(command: Filter, run: Any, *names: str) -> None:
    """Refuse options of tables where the run was trained on something else."""
    for name in command.given(*names):
        if not run.medium.has_alarms:
            raise ValueError(
                f"`{name}` is for tables, and this run was trained on {run.medium.plural}."
                " Leave it out."
            )


def _require_quantiles(command: Filter | Forecast, run: Any) -> None:
    """Refuse levels that were asked for where values are 0 or 1, of which none are told."""
    if command.given("levels") and not run.medium.has_quantiles:
        raise ValueError(
            "`levels` asks for quantiles, but what is predicted here is 0 or 1: the probability"
            " that is predicted says all. Leave it out."
        )


def _live(command: Filter | Forecast, applied: Any) -> Any:
    """Build the filter of the lines of standard input; it reports bad ones on stderr."""
    from varfilter.runs.live import LiveFilter

    options = command.flags()
    return LiveFilter(
        applied,
        lambda text: tell(in_options(text, options)),
        stop_on_bad_line=command.stop_on_bad_line,
        longest_gap=command.longest_gap,
    )


def _code_after(live: Any) -> int:
    """The exit code after the last line."""
    if live.interrupted:
        tell("Interrupted.")
        return 130
    if live.refused:
        tell("Stopped there. To leave such lines out and go on, leave --stop-on-bad-line out.")
    elif live.num_bad:
        verb = "was" if live.num_bad == 1 else "were"
        tell(f"{live.num_bad:,} of {count(live.num_lines, 'line')} {verb} bad, and left out.")
    return 2 if live.num_bad else 0
