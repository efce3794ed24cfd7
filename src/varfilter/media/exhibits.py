"""What there is to hear and to see of data and of a run, and how much of it is shown."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np


class Gallery(NamedTuple):
    """How much of a data set a figure of it shows at most, and what it says of gaps."""

    num_sequences: int = 4
    num_rows: int = 200
    missing: str = "missing values are grey-blue"


class Inspection(NamedTuple):
    """How much of a split a report looks at closely, and how much of that it draws."""

    num_sequences: int = 4
    num_drawn: int = 2
    num_steps: int = 200
    num_samples: int = 64
    has_worst: bool = False
    """Whether the sequence with the most nats per step comes first, and is drawn."""


class Clip(NamedTuple):
    """A recording that a page can play: its media type (audio/wav, image/gif) and its bytes."""

    kind: str
    content: bytes


class Exhibit(NamedTuple):
    """Something to hear or to see, and what it is, in whole sentences.

    It is a recording, a figure or a table: `paint` makes the second at a width in inches, and
    `traits` are the columns of the third, by their names.
    """

    caption: str
    clip: Clip | None = None
    paint: Callable[[float], Any] | None = None
    traits: Mapping[str, Mapping[str, float]] | None = None


@runtime_checkable
class Maker(Protocol):
    """A trained run that makes up sequences, which a medium may ask for."""

    def __call__(
        self, num_steps: int, num_sequences: int = 1, *, mean: bool = False
    ) -> list[np.ndarray]:
        """Sequences (steps, *event) in the model's units, by the seed of the report.

        The first step is that of a training sequence. With `mean`, each x_t is the mean of its
        emission, as the medium has it (`likely`).
        """
        ...
