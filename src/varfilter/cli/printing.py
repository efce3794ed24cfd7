"""What `varfilter data` prints for people: numbers as tables, bars while files come."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varfilter.data.sets.checks import Judgement
    from varfilter.data.sets.transfer import Progress


@contextmanager
def progress_bars() -> "Iterator[Progress | None]":
    """A bar for each file; none where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield show


def print_numbers(numbers: dict[str, Any], judgement: "Judgement | None") -> None:
    """Of `describe`, as tables; and the verdict."""
    from rich.markup import escape

    print(f"{numbers['name']}: observations of shape {tuple(numbers['observation'])}")
    splits = numbers["splits"].values()
    # One below another: a line has room for three numbers, not for ten.
    facts = [
        {
            "sequences": shown["sequences"],
            "steps": shown["steps"],
            **{f"{k} sequence": v for k, v in shown.get("length", {}).items()},
            **{f"{k} value": shown.get(k) for k in ("lowest", "highest", "mean")},
            "missing": shown.get("missing"),
            **_of_ones(shown),
        }
        for shown in splits
    ]
    rows = [[what, *(_short(fact.get(what)) for fact in facts)] for what in facts[0]]
    _print_table(["", *numbers["splits"]], rows)
    if "columns" in numbers:
        cells = [
            [escape(name), *map(_short, column.values())]
            for name, column in numbers["columns"].items()
        ]
        _print_table(["column (train)", "family", "lowest", "highest", "mean", "missing"], cells)
    else:
        print(f"family: {', '.join(numbers['family'])}")
    if numbers["rate"]:
        print(f"rate: {numbers['rate']:g} rows in a second, {numbers['rows_per_step']} in a step")
    print(f"sha256: {numbers['sha256']}")
    for note in numbers["notes"]:
        print(note)
    for problem in numbers["problems"]:
        print(f"PROBLEM: {problem}")
    if judgement:
        print("\n".join(judgement.lines))
        good = "verified" if judgement.is_verified else "nothing wrong, not verified"
        print(f"verdict: {good if judgement.is_good else 'WRONG'}")


def _of_ones(shown: dict[str, Any]) -> dict[str, Any]:
    if "ones_per_step" not in shown:
        return {}
    if "pitches" not in shown:
        return {"ones in a step": shown["ones_per_step"]}
    lowest, highest = shown["pitches"]
    return {"notes in a step": shown["ones_per_step"], "pitches": f"{lowest}-{highest}"}


def _short(cell: Any) -> str:
    if cell is None:
        return "-"
    if not isinstance(cell, float):
        return str(cell)
    # Not 8e+04: beside whole numbers, one looks like them.
    return f"{cell:.0f}" if 1e4 <= abs(cell) < 1e15 else f"{cell:.4g}"


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(*(Column(title, overflow="fold") for title in header))
    for row in rows:
        table.add_row(*row)
    Console().print(table)
