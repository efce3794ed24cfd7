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
        self._outside: set[str] = set()

    def rows(self, lines: Iterable[str | bytes]) -> Iterator[Row]:
        """Yield the rows of `filter_data`, each before waiting for the next line."""
        applied = self.applied
        # Compiled before the first line comes, which should not wait for it.
        missing = np.full(applied.dataset.observation_shape, np.nan, np.float32)
        size = applied.dataset.input_size
        known = np.zeros(size, np.float32) if size else None
        applied.predict(applied.started(missing), known, missing)
        for step in self._steps(lines):
            sequence = self._sequence([step])
            if step.sequence not in self._beliefs:
                self._fold(step.sequence, sequence)
                yield applied.first_row(sequence)
                continue
            predicted = applied.predict(self._beliefs[step.sequence], step.u, sequence.xs[0])
            found = (self._fold(step.sequence, sequence), predicted)
            filtered, predicted = jax.tree.map(lambda leaf: np.asarray(leaf)[None], found)
            yield next(applied.rows(sequence, 0, 1, filtered, predicted))

    def forecast_rows(
        self, lines: Iterable[str | bytes], horizon: int, inputs: Any = None
    ) -> Iterator[Row]:
        """Yield the rows of `forecast_data` for each sequence, after the last line.

        Lines at the end that have nothing but the known inputs are those of the steps to come,
        unless `inputs` has them.
        """
        dataset = self.applied.dataset
        medium = medium_of(dataset)
        plan = medium.plan(dataset, inputs)
        last: dict[str | int, Any] = {}
        waiting: dict[str | int, list[Any]] = {}
        for step in self._steps(lines):
            name = step.sequence
            held_back = waiting.setdefault(name, [])
            held_back.append(step)
            is_plan = plan is None and step.u is not None and np.isnan(step.row).all()
            if is_plan and name in last:
                continue
            for each in held_back:
                self._fold(name, self._sequence([each]))
            last[name], waiting[name] = step, []
        if self.refused:
            return
        for name, belief in self._beliefs.items():
            rest = self._sequence([last[name], *waiting[name]])
            _, ahead = medium.ahead(dataset, rest, horizon, plan)
            yield from self.applied.forecast_rows(belief, name, ahead)

    def _sequence(self, steps: list[Any]) -> NewSequence:
        """Some steps of a sequence, one after another, as they are filtered."""
        rows = np.stack([step.row for step in steps])
        times = np.array([step.time for step in steps])
        us = None if steps[0].u is None else np.stack([step.u for step in steps])
        xs = self.applied.dataset.observations(rows)
        known = self.applied.training_range
        for name, text in {} if known is None else known.outside(rows).items():
            if name not in self._outside:
                self.report(f"Line {self.num_lines} of standard input: {text}")
                self._outside.add(name)
        return NewSequence(steps[0].sequence, rows, xs, times, us)

    def _fold(self, name: str | int, sequence: NewSequence) -> Any:
        """Fold the one step of `sequence` into the belief; the first one begins it."""
        x, u = sequence.xs[0], None if sequence.us is None else sequence.us[0]
        if name not in self._beliefs:
            self._beliefs[name] = self.applied.started(x)
            return None
        # One stream serves all sequences: each would compile the same step again.
        if self._streamed != name:
            self._stream.belief, self._streamed = self._beliefs[name], name
        filtered = self._stream.push(x, u)
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
