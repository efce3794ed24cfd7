"""What a trained model has to know of its data, as plain JSON: all but the numbers themselves.

With it a run filters new recordings where the training data are not at hand.
"""

from typing import Any

import numpy as np

from varfilter import distributions
from varfilter.data.dataset import SPLITS, Dataset, Family, Scaling
from varfilter.data.ragged import Ragged
from varfilter.data.tables.grid import Clock
from varfilter.data.tables.layout import Layout
from varfilter.data.tables.read import Table


def facts_of(dataset: Dataset, table: Table | None = None) -> dict[str, Any]:
    """Of a data set, and of the table it came from."""
    row = dataset.train.values
    families = dataset.family if isinstance(dataset.family, tuple) else (dataset.family,)
    facts = {
        "name": dataset.name,
        "sha256": dataset.sha256(),
        "sequences": {split: len(dataset.split(split)) for split in SPLITS},
        "rows": {split: len(dataset.split(split).values) for split in SPLITS},
        "row_shape": list(row.shape[1:]),
        "dtype": row.dtype.str,
        "families": [
            {
                "distribution": f.distribution.__name__,
                "width": f.width,
                "low": f.low,
                "high": f.high,
            }
            for f in families
        ],
        "is_by_column": isinstance(dataset.family, tuple),
        "offset": np.asarray(dataset.scaling.offset, np.float64).tolist(),
        "scale": np.asarray(dataset.scaling.scale, np.float64).tolist(),
        "rows_per_step": dataset.rows_per_step,
        "columns": list(dataset.columns),
        "rate": dataset.rate,
    }
    if table is not None:
        layout = table.layout
        facts["table"] = {
            "kinds": table.kinds,
            "time": layout.clock.column,
            "is_date": layout.clock.is_date,
            "sequence": layout.sequence,
            "long": layout.long and list(layout.long),
            "step": table.step,
        }
    return facts


def dataset_like(facts: dict[str, Any]) -> Dataset:
    """A data set of these facts, without a single sequence: what models are built for."""
    families = tuple(
        Family(getattr(distributions, f["distribution"]), f["width"], f["low"], f["high"])
        for f in facts["families"]
    )
    empty = Ragged(np.zeros((0, *facts["row_shape"]), facts["dtype"]), np.zeros(0, np.int64))
    offset, scale = (
        np.asarray(facts[name]) if isinstance(facts[name], list) else facts[name]
        for name in ("offset", "scale")
    )
    return Dataset(
        facts["name"],
        empty,
        empty,
        empty,
        families if facts["is_by_column"] else families[0],
        Scaling(offset, scale),
        facts["rows_per_step"],
        columns=tuple(facts["columns"]),
        rate=facts["rate"],
    )


def table_like(facts: dict[str, Any]) -> Table | None:
    """What reads further tables like the one of these facts; None if they are of no table."""
    if "table" not in facts:
        return None
    known = facts["table"]
    layout = Layout(
        Clock(known["time"], known["is_date"]),
        known["sequence"],
        None if known["long"] is None else (known["long"][0], known["long"][1]),
    )
    return Table(dataset_like(facts), known["kinds"], {}, {}, layout, known["step"])
