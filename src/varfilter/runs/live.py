"""Lines of JSON on standard input, filtered one by one as they come."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from varfilter.filtering import Belief
from varfilter.media import NewSequence, Row, medium_of
from varfilter.runs.applied import AppliedRun
from varfilter.stream import Stream


class LiveFilter:
    """Filters lines such as {"time": 12.5, "warm": 20.1, "is_on": null} one by one.

    What a line may hold, and what is a bad one, the medium's reader of lines says
    (`TableLines`). A bad line is reported with its number and, unless `skip_bad_lines`, is the
    last one: `refused` then says so; what was filtered before stays so. `num_bad` counts them,
    `num_lines` all lines.
    """

    def __init__(
        self, applied: AppliedRun, report: Callable[[str], None], *, skip_bad_lines: bool = False
    ):
        self.applied = applied
        self.report, self.skip_bad_lines = report, skip_bad_lines
        self.num_lines = self.num_bad = 0
        self.refused = self.interrupted = False
        self._reader = medium_of(applied.dataset).lines(applied.dataset)
        self._beliefs: dict[str | int, Belief] = {}
        self._stream = Stream(applied.filter, applied.model, applied.key)
        self._streamed: str | int | None = None

    def rows(self, lines: Iterable[str | bytes]) -> Iterator[Row]:
        """Yield the rows of `filter_data`, each before waiting for the next line."""
        applied = self.applied
        # Compiled before the first line comes, which should not wait for it.
        missing = np.full(applied.dataset.observation_shape, np.nan, np.float32)
        applied.predict(applied.started(missing))
        for name, row, time in self._steps(lines):
            x = applied.dataset.observations(row[None])[0]
            sequence = NewSequence(name, row[None], x[None], np.asarray(time)[None])
            if name not in self._beliefs:
                self._beliefs[name] = applied.started(x)
                yield applied.first_row(sequence)
                continue
            predicted = applied.predict(self._beliefs[name])
            step = (self._push(name, x), predicted)
            filtered, predicted = jax.tree.map(lambda leaf: np.asarray(leaf)[None], step)
            yield next(applied.rows(sequence, 0, 1, filtered, predicted))

    def forecast_rows(self, lines: Iterable[str | bytes], horizon: int) -> Iterator[Row]:
        """Yield the rows of `forecast_data` for each sequence, after the last line."""
        last: dict[str | int, Any] = {}
        for name, row, time in self._steps(lines):
            x = self.applied.dataset.observations(row[None])[0]
            last[name] = time
            if name in self._beliefs:
                self._push(name, x)
            else:
                self._beliefs[name] = self.applied.started(x)
        if self.refused:
            return
        for name, belief in self._beliefs.items():
            yield from self.applied.forecast_rows(belief, horizon, name, last[name])

    def _push(self, name: str | int, x: np.ndarray) -> Any:
        # One stream serves all sequences: each would compile the same step again.
        if self._streamed != name:
            self._stream.belief, self._streamed = self._beliefs[name], name
        filtered = self._stream.push(x)
        self._beliefs[name] = self._stream.belief
        return filtered

    def _steps(self, lines: Iterable[str | bytes]) -> Iterator[Any]:
        try:
            for line in lines:
                self.num_lines += 1
                if not line.strip():
                    continue
                try:
                    steps = self._reader.read(line)
                except ValueError as error:
                    self.num_bad += 1
                    self.report(f"Line {self.num_lines} of standard input {error}")
                    if self.skip_bad_lines:
                        continue
                    self.refused = True
                    return
                yield from steps
        except KeyboardInterrupt:  # how people end a live stream: what came is kept
            self.interrupted = True
