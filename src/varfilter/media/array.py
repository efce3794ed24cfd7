"""Arrays of numbers that are nothing else: the medium of data sets that users put together."""

from dataclasses import dataclass
from typing import ClassVar

from varfilter.data.dataset import Dataset
from varfilter.media.base import AbstractMedium, Gallery, Source

LINES = Gallery(3, 1000, "marks at the bottom are missing values")


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

    def gallery_of(self, dataset: Dataset) -> Gallery:
        """A few numbers are drawn as lines, as the columns of a table are."""
        from varfilter.plots.datasets import MOST_PANELS

        is_small = dataset.num_elements // dataset.rows_per_step <= MOST_PANELS
        return LINES if is_small else self.gallery
