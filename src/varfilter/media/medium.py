"""What a data set is a recording of, told by its rows: music, sound, film, a table, or arrays."""

from typing import Literal

from varfilter.data.dataset import Dataset, Family
from varfilter.data.rolls import NUM_KEYS
from varfilter.data.tables.read import Table
from varfilter.distributions import Bernoulli

Medium = Literal["music", "sound", "film", "table", "array"]


def medium(data: Dataset | Table) -> Medium:
    """By a row of the recording; an `array` is none of the others.

    - `table`: the columns have names.
    - `music`: a row is 88 keys, up or down.
    - `sound`: a row is one number, so many in a second.
    - `film`: a row is an image of 8 pixels or more each way, grey (with or without an axis of
      channels) or of three colours.
    """
    dataset = dataset_of(data)
    row = dataset.train.values.shape[1:]
    if dataset.columns and dataset.rows_per_step == 1 and len(row) == 1:
        return "table"
    if row == () and dataset.rate is not None:
        return "sound"
    if dataset.rows_per_step != 1:
        return "array"
    if row == (NUM_KEYS,) and is_binary(dataset.family):
        return "music"
    has_image = len(row) == 2 or (len(row) == 3 and row[0] in (1, 3))
    # As in the pictures of data sets: what is longer than this is a matrix and no image.
    if has_image and min(row[-2:]) >= 8 and max(row[-2:]) <= 4 * min(row[-2:]):
        return "film"
    return "array"


def dataset_of(data: Dataset | Table) -> Dataset:
    """The data set of a table, or the data set itself."""
    return data.dataset if isinstance(data, Table) else data


def is_binary(family: Family | tuple[Family, ...]) -> bool:
    """Whether all of an observation is noughts and ones."""
    return isinstance(family, Family) and issubclass(family.distribution, Bernoulli)
