"""Tables as they come: a line of JSON for each step, several sequences beside each other."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.tables.columns import MISSING, column_of, unfit
from varfilter.data.tables.files import SEQUENCE_AXIS
from varfilter.data.tables.grid import places
from varfilter.data.tables.read import LONGEST_NEW, Table
from varfilter.filtering import Belief
from varfilter.media.rows import Row
from varfilter.media.steps import step_row
from varfilter.prediction import predict
from varfilter.runs.applied import Ready, future_rows
from varfilter.runs.inputs import Recorded
from varfilter.stream import Stream

LARGEST = float(np.finfo(np.float32).max)


@dataclass
class Followed:
    """A sequence so far: when it began, how many steps ago, and the belief about it.

    `origin` is the stamp of its first step; None: its steps are counted.
    """

    name: str | int
    origin: float | int | None = None
    place: int = -1
    belief: Belief | None = None


class Reading(NamedTuple):
    """One step of a sequence: its row, all NaN where no line came; and when it was."""

    followed: Followed
    row: np.ndarray
    time: Any


class LineFilter:
    """Filters lines such as {"time": 12.5, "warm": 20.1, "is_on": null} one by one.

    - A column that is absent or null is missing. Other names are ignored, but a line that has
      only such is bad.
    - The column of times, where the run has one, may be left out: the line is then the next step.
      A line that comes later than the next step is preceded by rows without values; one that
      is no step after the line before it is bad: what was filtered stays so.
    - The column that names the sequence, or `sequence` where the run has none, tells streams
      apart; without it all lines are one.

    A bad line is reported with its number and, unless `skip_bad_lines`, is the last one:
    `refused` then says so. `num_bad` counts them, `num_lines` all lines.
    """

    def __init__(self, ours: Ready, report: Callable[[str], None], *, skip_bad_lines: bool = False):
        if not isinstance(ours.data, Table):
            raise ValueError(
                "`INPUT` is -, but lines on standard input are for runs on tables; this one was"
                f" trained on {ours.data.name!r}. Give the path of a recording."
            )
        self.ours, self.table = ours, ours.data
        self.report, self.skip_bad_lines = report, skip_bad_lines
        self.num_lines = self.num_bad = 0
        self.refused = self.interrupted = False
        self.sequences: dict[str | int, Followed] = {}
        self._stream = Stream(ours.filter, ours.model, ours.key)
        self._current: Followed | None = None
        layout = self.table.layout
        self._step = 1 if self.table.step is None else layout.clock.distance(self.table.step)
        named = layout.sequence not in (None, SEQUENCE_AXIS)
        self._sequence = layout.sequence if named else "sequence"

    def rows(self, lines: Iterable[str | bytes]) -> Iterator[Row]:
        """The rows of `filter_input`, each before the next line is waited for."""
        ours = self.ours
        self._compile()
        for followed, row, time in self._readings(lines):
            x = ours.dataset.observations(row[None])[0]
            if followed.belief is None:
                followed.belief = ours.begun(x)
                recorded = Recorded(followed.name, row[None], x[None], np.asarray(time)[None])
                yield ours.first_row(recorded)
                continue
            predicted = predict(
                ours.filter, ours.model, followed.belief, ours.key,
                num_samples=ours.num_samples, levels=ours.levels,
            )  # fmt: skip
            filtered = self._pushed(followed, x)
            yield step_row(
                self.table, row, filtered,
                predicted=predicted, sequence=followed.name, time=time, latents=ours.latents,
            )  # fmt: skip

    def forecast_rows(self, lines: Iterable[str | bytes], horizon: int) -> Iterator[Row]:
        """The rows of `forecast_input`, for each sequence, after the last line."""
        last: dict[str | int, Any] = {}
        for followed, row, time in self._readings(lines):
            x = self.ours.dataset.observations(row[None])[0]
            last[followed.name] = time
            if followed.belief is None:
                followed.belief = self.ours.begun(x)
            else:
                self._pushed(followed, x)
        if self.refused:
            return
        for name, followed in self.sequences.items():
            assert followed.belief is not None
            yield from future_rows(self.ours, followed.belief, horizon, name, last[name])

    def _compile(self) -> None:
        """Before the first line comes, which should not wait for it."""
        ours = self.ours
        missing = np.full(ours.dataset.observation_shape, np.nan, np.float32)
        belief = ours.begun(missing)
        predict(
            ours.filter, ours.model, belief, ours.key,
            num_samples=ours.num_samples, levels=ours.levels,
        )  # fmt: skip

    def _pushed(self, followed: Followed, x: np.ndarray) -> Any:
        # One stream serves all sequences: each would compile the same step again.
        if self._current is not followed:
            assert followed.belief is not None
            self._stream.belief, self._current = followed.belief, followed
        filtered = self._stream.push(x)
        followed.belief = self._stream.belief
        return filtered

    def _readings(self, lines: Iterable[str | bytes]) -> Iterator[Reading]:
        try:
            for line in lines:
                self.num_lines += 1
                if not line.strip():
                    continue
                try:
                    followed, place, row = self._read(line)
                except ValueError as error:
                    self.num_bad += 1
                    self.report(f"Line {self.num_lines} of standard input {error}")
                    if self.skip_bad_lines:
                        continue
                    self.refused = True
                    return
                while followed.place < place:
                    followed.place += 1
                    is_gap = followed.place < place
                    values = np.full_like(row, np.nan) if is_gap else row
                    yield Reading(followed, values, self._time(followed))
        except KeyboardInterrupt:  # how people end a live stream: what came is kept
            self.interrupted = True

    def _read(self, line: str | bytes) -> tuple[Followed, int, np.ndarray]:
        """The sequence of a line, its place there, and its row; nothing is changed if it is bad."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON ({str(error).rstrip('.')}): {_shown(line)}.") from None
        if not isinstance(found, dict):
            raise ValueError(f"must be an object with the names of columns; got {_shown(line)}.")
        columns = self.table.dataset.columns
        reserved = (self._sequence, self.table.layout.clock.column)
        others = [name for name in found if name not in (*columns, *reserved)]
        if others and not any(name in columns for name in found):
            raise ValueError(
                f"has none of the columns {', '.join(columns[:6])}; it has"
                f" {', '.join(map(repr, others[:6]))}."
            )
        kinds = self.table.kinds
        row = [_number(name, kinds[name], found.get(name)) for name in columns]
        followed = self._followed(found)
        place = self._place(followed, found)
        self.sequences.setdefault(followed.name, followed)
        return followed, place, np.array(row, np.float32)

    def _followed(self, found: dict[str, Any]) -> Followed:
        if self._sequence not in found or self._sequence in self.table.dataset.columns:
            return self.sequences.get(0) or Followed(0)
        name = found[self._sequence]
        if name is None or isinstance(name, list | dict | bool):
            raise ValueError(f"has {json.dumps(name)} as the name of its sequence.")
        name = str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
        return self.sequences.get(name) or Followed(name)

    def _place(self, followed: Followed, found: dict[str, Any]) -> int:
        """On the grid of its sequence; times that were not given go on by a step."""
        clock = self.table.layout.clock
        time = None if clock.column is None else found.get(clock.column)
        if time is None:
            return followed.place + 1
        column = column_of([time])
        if column.form != ("time" if clock.is_date else "number"):
            what = "a date such as 2024-01-31T12:30:00" if clock.is_date else "a number"
            raise ValueError(f"has {json.dumps(time)} as `{clock.column}`, which must be {what}.")
        stamps = clock.stamps(column)
        if followed.place < 0:
            followed.origin = stamps[0].item()
            return 0
        if followed.origin is None:
            raise ValueError(
                f"has a `{clock.column}`, but the first line of its sequence has none. Give it to"
                " all, or to none."
            )
        place = int(places(stamps, followed.origin, self._step)[0])
        if place <= followed.place:
            raise ValueError(
                f"has the `{clock.column}` {json.dumps(time)}, which is no step after the line"
                " before. Give lines in the order of time."
            )
        if place - followed.place > LONGEST_NEW:
            raise ValueError(
                f"has the `{clock.column}` {json.dumps(time)}, {place - followed.place} steps after"
                f" the line before; the most is {LONGEST_NEW}."
            )
        return place

    def _time(self, followed: Followed) -> Any:
        if followed.origin is None:
            return followed.place
        stamp = np.array([followed.origin + followed.place * self._step])
        return self.table.layout.clock.times(stamp)[0]


def _number(name: str, kind: str, value: Any) -> float:
    """As in a table: NaN where it is missing."""
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return math.nan
    try:
        number = math.nan if isinstance(value, list | dict) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if isinstance(value, list | dict) or not (math.isnan(number) or abs(number) <= LARGEST):
        raise ValueError(
            f"has {_shown(json.dumps(value))} in column `{name}`, where a number or null must be."
        )
    if unfit(kind, np.array([number])).size:
        what = "0 and 1" if kind == "binary" else "whole numbers from 0 on"
        raise ValueError(f"has {number:g} in column `{name}`, a {kind} one, of {what}.")
    return number


def _shown(line: str | bytes) -> str:
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")
