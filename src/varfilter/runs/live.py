"""Lines of JSON on standard input, filtered one by one as they come."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from varfilter._arguments import require_positive
from varfilter.data.continued import MOST_BEFORE
from varfilter.filtering import Belief
from varfilter.media import NewSequence, Row, medium_of
from varfilter.media.formats import Moment
from varfilter.media.rows import GivenRows, objects
from varfilter.runs.applied import AppliedRun
from varfilter.stream import Stream


class LiveFilter:
    """Filters lines such as {"time": 12.5, "warm": 20.1, "is_on": null} one by one.

    What a line may hold, and what is a bad one, the medium's reader of lines says
    (`TableLines`). A bad line is reported with its number and left out. With `stop_on_bad_line` it
    is the last one: `refused` then says so; what was filtered before stays so. `num_bad` counts
    them, `num_lines` all lines. A gap of more than `longest_gap` steps between two lines is not
    filtered through (1000 if None).
    """

    def __init__(
        self,
        applied: AppliedRun,
        report: Callable[[str], None],
        *,
        stop_on_bad_line: bool = False,
        longest_gap: int | None = None,
    ):
        if longest_gap is not None:
            require_positive("longest_gap", longest_gap)
        self.applied = applied
        self.report, self.stop_on_bad_line = report, stop_on_bad_line
        self.num_lines = self.num_bad = 0
        self.refused = self.interrupted = False
        self._reader = medium_of(applied.dataset).lines(applied.dataset, longest_gap=longest_gap)
        self._beliefs: dict[str | int, Belief] = {}
        # Before the last step of a sequence, which a second line may change; None before its first.
        self._before: dict[str | int, Belief | None] = {}
        self._stream = Stream(applied.filter, applied.model, applied.key)
        self._streamed: str | int | None = None
        self._outside: set[str] = set()
        # What references of a pool are told of.
        self._recent: dict[str | int, deque[NewSequence]] = {}

    def rows(self, lines: Iterable[str | bytes]) -> Iterator[Row]:
        """Yield the rows of `filter_data`, each before waiting for the next line."""
        applied = self.applied
        # Compiled before the first line comes, which should not wait for it.
        missing = np.full(applied.dataset.observation_shape, np.nan, np.float32)
        size = applied.dataset.input_size
        known = np.zeros(size, np.float32) if size else None
        applied.predict(applied.started(missing), known, missing)
        for step in self._steps(lines):
            before = self._belief_before(step)
            sequence = self._sequence([step])
            if step.own is None and not applied.fill_gaps:
                self._fold(step, sequence)
            elif before is None:
                self._fold(step, sequence)
                yield from applied.first_rows(sequence)
            else:
                predicted = applied.predict(before, step.u, sequence.xs[0])
                found = (self._fold(step, sequence), predicted)
                filtered, predicted = jax.tree.map(lambda leaf: np.asarray(leaf)[None], found)
                yield from applied.rows(sequence, 0, 1, filtered, predicted)

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
            if step.is_again and held_back:
                step = step._replace(is_again=False)
                held_back.pop()
            held_back.append(step)
            is_plan = plan is None and step.u is not None and np.isnan(step.row).all()
            if is_plan and name in last:
                continue
            for each in held_back:
                self._fold(each, self._sequence([each]))
            last[name], waiting[name] = step, []
        if self.refused:
            return
        for name, belief in self._beliefs.items():
            rest = self._sequence([last[name], *waiting[name]])
            _, ahead = medium.ahead(dataset, rest, horizon, plan)
            yield from self.applied.forecast_rows(belief, self._history(name), ahead)

    def _history(self, name: str | int) -> NewSequence:
        """The last steps of a sequence."""
        recent = self._recent[name]
        rows, xs, times = (
            np.concatenate([getattr(step, part) for step in recent])
            for part in ("rows", "xs", "times")
        )
        us = [step.us for step in recent if step.us is not None]
        return NewSequence(name, rows, xs, times, np.concatenate(us) if us else None)

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
        given, (step, *others) = None, steps
        if step.own is not None and not others:
            time = step.time if step.own_time is None else step.own_time
            time = time if step.text is None else Moment.of(time, step.text)
            first = np.zeros(1, np.int64)
            cells = {name: objects([value]) for name, value in step.cells.items()}
            given = GivenRows(first, first, step.own[None], objects([time]), cells)
        return NewSequence(step.sequence, rows, xs, times, us, given)

    def _belief_before(self, step: Any) -> Belief | None:
        """What is believed before a step; None before the first of its sequence."""
        if step.is_anew:
            return None
        beliefs = self._before if step.is_again else self._beliefs
        return beliefs.get(step.sequence)

    def _fold(self, step: Any, sequence: NewSequence) -> Any:
        """Fold a step into the belief; the first one begins it."""
        name, before = step.sequence, self._belief_before(step)
        self._before[name] = before
        # Without a pool nobody asks for what came before the last step.
        most = 1 if self.applied.pool is None else MOST_BEFORE
        recent = self._recent.setdefault(name, deque(maxlen=most))
        if step.is_anew or before is None:
            recent.clear()
        elif step.is_again:
            recent.pop()
        recent.append(sequence)
        if before is None:
            self._beliefs[name] = self.applied.started(sequence.xs[0])
            self._streamed = None
            return None
        # One stream serves all sequences: each would compile the same step again.
        if self._streamed != name or step.is_again:
            self._stream.belief, self._streamed = before, name
        filtered = self._stream.push(sequence.xs[0], step.u)
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
                    self._reader.notes.clear()  # of a line that is left out nothing is taken
                    self.num_bad += 1
                    self.report(f"Line {self.num_lines} of standard input {error}")
                    if not self.stop_on_bad_line:
                        continue
                    self.refused = True
                    return
                for note in self._reader.notes:
                    self.report(f"Line {self.num_lines} of standard input: {note}")
                self._reader.notes.clear()
                if steps[-1].is_anew:
                    name = f" {steps[-1].sequence!r}" if steps[-1].sequence != 0 else ""
                    self.report(
                        f"Line {self.num_lines} of standard input follows the one that was far:"
                        f" the sequence{name} begins anew with it."
                    )
                yield from steps
        except KeyboardInterrupt:  # how people end a live stream: what came is kept
            self.interrupted = True
