"""The scores of a run beside its references, column by column, as a table for a terminal."""

import shutil
import sys
from collections.abc import Mapping
from typing import Any

from varfilter._text import count, printable, say, tell

# A terminal that is no wider shows every line whole.
WIDTH = 80
# Names that are longer are broken.
LONGEST_NAME = 18
# Of more columns, the file has the rest.
MOST_COLUMNS = 12
SCORES = {
    "rmse": "RMSE",
    "nats": "log score",
    "crps": "CRPS",
    "within_50": "50%",
    "within_90": "90%",
}


def say_comparison(found: Mapping[str, Any]) -> None:
    """Print a table for each horizon: RMSE, log score, CRPS and bands of every predictor."""
    from rich.console import Console

    console = Console(
        file=sys.stdout, width=min(shutil.get_terminal_size().columns, WIDTH), highlight=False
    )
    for horizon in found["horizons"]:
        ahead = "one step ahead" if horizon == 1 else f"{horizon} steps ahead"
        steps, sequences = found["num_steps"], found["num_sequences"]
        scored = f"{count(steps, 'step')} of {count(sequences, 'sequence')} of {found['split']}"
        every = found["forecast_every"]
        if horizon > 1 and every > 1:
            scored += f", from one in {every}"
        console.print(f"\n{ahead}, {scored}:", markup=False)
        console.print(_table(found, horizon))
    names = next(iter(found["columns"].values()))[str(found["horizons"][0])]
    if len(names) > MOST_COLUMNS:
        console.print(f"{len(names) - MOST_COLUMNS} more columns are in the JSON of `evaluate`.")
    console.print(
        "RMSE and CRPS in the column's own units; log score in nats (all: per step) of standardised"
        " ones, add log(spread in training) for the column's own; lower is better. 50% and 90%: the"
        " values inside of such bands."
    )
    for note in found["notes"]:
        console.print(printable(note), markup=False)


def tell_what_comes(run: Any) -> None:
    """Say that a table is not done with training, of which alone it was said how long it takes."""
    if run.medium.has_column_references:
        tell(
            "Now what alarms are set by, the references, and what these weigh in forecasts:"
            " programs to compile, and the validation part many times over. That may take as long"
            " as a short training; Ctrl-C loses nothing that was learned."
        )


def say_alarms(run: Any, healthy: Any) -> None:
    """Print what the alarms of a run are set by, or that it will have none."""
    from varfilter.runs.calibration import FEWEST_VALUES

    if not run.medium.has_alarms:
        return
    if healthy is not None:
        steps = healthy.num_steps
        say(
            f"alarms: by {steps:,} steps, the validated and the last training ones; rates below"
            f" {1 / steps:.2g} are extrapolated"
        )
        return
    say(
        f"alarms: none, since fewer than {FEWEST_VALUES} steps of the validation part were"
        " observed; a longer table would have some"
    )


def _table(found: Mapping[str, Any], horizon: int) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from varfilter.runs.comparison import score_rows

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("column", overflow="fold", max_width=LONGEST_NAME)
    table.add_column("predictor", no_wrap=True)
    for name in SCORES.values():
        table.add_column(name, justify="right", no_wrap=True)
    for row in score_rows(found, horizon, MOST_COLUMNS):
        name = "all" if row.column is None else escape(printable(row.column))
        cells = [
            (share if score.startswith("within") else number)(row.scores[score])
            if score in row.scores
            else ""
            for score in SCORES
        ]
        style = "bold" if row.is_best else None
        table.add_row("" if row.number else name, row.predictor, *cells, style=style)
    return table


def number(value: float | None) -> str:
    """A score with four digits, short enough for a column of ten."""
    if value is None:
        return "-"
    return f"{value:.3f}" if 0.1 <= abs(value) < 1000 else f"{value:.4g}"


def share(value: float | None) -> str:
    """A share of values in percent; a column of 0 and 1 has no bands."""
    return "-" if value is None else f"{value:.0%}"
