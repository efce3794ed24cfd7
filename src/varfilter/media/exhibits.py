"""What a report has to hear and to see: recordings that a page plays, and figures of them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np


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
