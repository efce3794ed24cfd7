"""What a medium is judged by beside nats, in the units of its field: accuracy, decibels, bits."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np


class Measure(NamedTuple):
    """A number of the run, and the same of the data or of what takes no learning.

    - `what` says how it is computed, in words without a point.
    - `others` are the same number of other predictors, or of the data, by what they are.
    - `is_better` is "higher" or "lower"; None: the nearer to the data's.
    - `by_step` are curves of it 1, 2, ... steps ahead, by the name of the predictor, where there
      are any; `errors` are standard errors of such, over sequences.
    """

    name: str
    value: float
    what: str
    others: Mapping[str, float] = MappingProxyType({})
    is_better: str | None = None
    by_step: Mapping[str, list[float]] = MappingProxyType({})
    errors: Mapping[str, list[float]] = MappingProxyType({})

    def as_json(self) -> dict[str, Any]:
        """The measure as plain JSON."""
        plain = {name: dict(getattr(self, name)) for name in ("others", "by_step", "errors")}
        return self._asdict() | plain


class OneStep(NamedTuple):
    """A held-out sequence (steps, *event), and what was expected of each step but the first.

    Both are in the model's units. `means` has a step less than `xs`: means[t] is of xs[t + 1], and
    was predicted before that was seen.
    """

    xs: np.ndarray
    means: np.ndarray


class Futures(NamedTuple):
    """What was drawn after the first steps of a held-out sequence, beside what came.

    `seen` (begin, *event) was filtered; `came` (horizon, *event) followed; `draws` is (num_samples,
    horizon, *event), of the emissions' means if these were asked for. In the model's units. The
    sequence has the `name`.
    """

    seen: np.ndarray
    came: np.ndarray
    draws: np.ndarray
    name: str | int = ""


@runtime_checkable
class Predictor(Protocol):
    """A trained run on a held-out split, which a medium may ask for what it is judged by.

    It filters with as many trajectories as the run has on new data. Where the best of several
    futures counts, `num_futures` are drawn of each sequence; 0: that is left out.
    """

    @property
    def num_futures(self) -> int:
        """How many futures to draw of each sequence."""
        ...

    def one_step(self) -> Iterator[OneStep]:
        """What was expected of each step before it was seen, of each sequence of two or more."""
        ...

    def futures(
        self, begin: int, horizon: int, num_samples: int, *, mean: bool = True
    ) -> Iterator[Futures]:
        """Draw so many futures after `begin` steps of each sequence that is long enough.

        With `mean`, each x_t is the mean of its emission, as the medium has it (`likely`).
        """
        ...
