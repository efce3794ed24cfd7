"""A report on one run or several: a page, and beside it all of its numbers."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from varfilter.data.dataset import SPLITS
from varfilter.experiments import Run
from varfilter.report.page import render
from varfilter.report.summary import findings, labels
from varfilter.runs.run import write_whole


def report(runs: Sequence[Run], out: Path, *, split: str = "test", seed: int = 0) -> Path:
    """One self-contained page on the runs, at `out`; its numbers are in a .json of that name."""
    if not runs:
        raise ValueError("`runs` must have at least one run; got none.")
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}; got {split!r}.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"`seed` must lie in [0, 2^32); got {seed}.")
    out = require_page(out)
    found = [
        findings(run, label, split=split, seed=seed)
        for run, label in zip(runs, labels(runs), strict=True)
    ]
    numbers = {"split": split, "seed": seed, "runs": [each.numbers for each in found]}
    write_page(out, render(found, split=split, seed=seed), numbers)
    return out


def require_page(out: Path) -> Path:
    """A place for a page, before minutes are spent on what is to be written there."""
    out = Path(out).expanduser()
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"`out` must end in .html; got {str(out)!r}.")
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"`out` is {str(out)!r}: there is no folder {out.parent} to write it to. Make it first."
        )
    return out


def write_page(out: Path, page: str, numbers: dict[str, Any]) -> None:
    """The page, and its numbers in a .json of the same name."""
    write_whole(out.with_suffix(".json"), json.dumps(_finite(numbers), indent=1, allow_nan=False))
    write_whole(out, page)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
