"""Arrays of numbers that are nothing else: the medium of data sets that users put together."""

from dataclasses import dataclass
from typing import ClassVar

from varfilter.media.base import AbstractMedium, Gallery, Source


@dataclass(frozen=True)
class ArraySource(Source):
    """A data set of plain arrays, made in Python: there is no file to read it from."""

    medium: ClassVar[str] = "array"


class ArrayMedium(AbstractMedium):
    """Numbers without names, units or a picture of their own."""

    name = "array"
    plural = "arrays"
    source = ArraySource
    gallery = Gallery(num_rows=500)
