"""Media: what depends on the kind of the data, a file for each kind."""

from varfilter.media.base import AbstractMedium
from varfilter.media.catalogue import (
    MEDIA,
    forecast_rows,
    load,
    medium_at,
    medium_named,
    medium_of,
    new_sequences,
    picture,
    register,
    source_of,
    step_rows,
    write_samples,
)
from varfilter.media.exhibits import Gallery, Inspection
from varfilter.media.formats import Row, Vector, write_rows
from varfilter.media.measures import Measure
from varfilter.media.reference import Reference
from varfilter.media.sequences import Ahead, NewSequence, Source

__all__ = [
    "MEDIA",
    "AbstractMedium",
    "Ahead",
    "Gallery",
    "Inspection",
    "Measure",
    "NewSequence",
    "Reference",
    "Row",
    "Source",
    "Vector",
    "forecast_rows",
    "load",
    "medium_at",
    "medium_named",
    "medium_of",
    "new_sequences",
    "picture",
    "register",
    "source_of",
    "step_rows",
    "write_rows",
    "write_samples",
]
