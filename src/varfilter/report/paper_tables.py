"""A table of the paper beside ours: as a page, as Markdown, and for the terminal."""

import html
import textwrap
from typing import Any

from varfilter._text import count
from varfilter.plots.page import command_line, document, facts, table
from varfilter.report.page import nats, printed

HEAD = ("experiment", "data", "nats per step", "standard error", "paper, corrected",
        "divided by T", "paper, printed", "trained")  # fmt: skip
ABOUT = (
    "Free energy in nats per step, lower is better, every sequence with the same weight. Our nats"
    " per step are of the steps that were scored, and compare with the paper's number corrected to"
    " those; divided by T, all T steps of a sequence instead of the T-1 scored ones, they compare"
    " with the number as printed. The standard error is over sequences, not seeds."
)


def paper_page(numbers: dict[str, Any], figures: list[str]) -> str:
    """The HTML of a table or a figure of the paper beside ours; `figures` are HTML."""
    warnings = "".join(f'<p class="loud">{html.escape(text)}</p>' for text in _warnings_of(numbers))
    commands = [row["command"] for row in numbers["rows"] if row["results"]]
    body = [
        f"<h1>{html.escape(numbers['title'])}</h1>",
        f'<p class="lead">Ours beside those of the paper. Scored with seed {numbers["seed"]}.</p>',
        warnings,
        *figures,
        table(HEAD, [_cells(row) for row in numbers["rows"]]),
        f'<p class="note">{html.escape(ABOUT)}</p>',
    ]
    if missing := _missing_of(numbers):
        listed = [(data, html.escape(reason)) for data, reason in missing.items()]
        body += ["<h2>What is missing</h2>", facts(listed)]
    if commands:
        items = "".join(f"<li>{command_line(line)}</li>" for line in commands)
        body += ["<h2>The runs, each by itself</h2>", f"<ul>{items}</ul>"]
    return document(f"varfilter: {numbers['title']}", "\n".join(body))


def paper_markdown(numbers: dict[str, Any]) -> str:
    """The table of the paper beside ours as Markdown, for a README."""
    lines = [f"# {numbers['title']}", ""]
    lines += [f"**{text}**\n" for text in _warnings_of(numbers)]
    rows = [HEAD, ["---", "---", *["---:"] * (len(HEAD) - 3), "---"], *map(_cells, numbers["rows"])]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines += ["", ABOUT]
    for data, reason in _missing_of(numbers).items():
        lines += ["", f"{data} is missing: {reason}"]
    return "\n".join(lines) + "\n"


def terminal_table(numbers: dict[str, Any]) -> list[str]:
    """The table in lines of at most 80 columns, with the pair of numbers that compare."""
    rows = [("nats per step", "ours", "error", "paper's", "updates")]
    for row in numbers["rows"]:
        results, published = row["results"], row["published"] or {}
        paper = printed(published.get("corrected"))
        if results is None:
            rows.append((row["wanted"], "missing", "", paper, ""))
            continue
        error = nats(results["standard_error"])
        name = row["experiment"] + ("*" if row["is_at_hand"] else "")
        rows.append((name, nats(results["nats"]), error, paper, f"{row['num_updates']:,}"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    about = "The error is over sequences; the paper's numbers are of the steps that were scored."
    return [*lines, "", *textwrap.wrap(about, 79), *_wrapped_warnings(numbers)]


def _wrapped_warnings(numbers: dict[str, Any]) -> list[str]:
    found = [line for text in _warnings_of(numbers) for line in textwrap.wrap(text, 79)]
    for data, reason in _missing_of(numbers).items():
        found += textwrap.wrap(f"{data} is missing: {reason}", 79, break_long_words=False)
    return found


def _missing_of(numbers: dict[str, Any]) -> dict[str, str]:
    """The data sets that are not here, each with the reason."""
    return {row["data_wanted"]: row["missing"] for row in numbers["rows"] if row["missing"]}


def _cells(row: dict[str, Any]) -> list[str]:
    """The row of one experiment."""
    published, results = row["published"] or {}, row["results"]
    paper = printed(published.get("corrected")), printed(published.get("nats"))
    if results is None:
        return [row["wanted"], row["data_wanted"], "missing", "", paper[0], "", paper[1], ""]
    data = row["data"] + (" (not the paper's data)" if row["is_at_hand"] else "")
    return [
        row["experiment"],
        data,
        nats(results["nats"]),
        nats(results["standard_error"]),
        paper[0],
        nats(results["nats_as_published"]),
        paper[1],
        count(row["num_updates"], "update"),
    ]


def _warnings_of(numbers: dict[str, Any]) -> list[str]:
    """What a reader must know before the numbers."""
    found = []
    if numbers["max_updates"] is not None and any(row["results"] for row in numbers["rows"]):
        found.append(
            f"A short try: at most {count(numbers['max_updates'], 'update')} each. These numbers"
            " say nothing of the method."
        )
    if others := sorted({row["data"] for row in numbers["rows"] if row["is_at_hand"]}):
        found.append(
            f"OTHER DATA: {', '.join(others)} in the place of the paper's, which are licensed and"
            " not here. The numbers do not compare with the paper's."
        )
    return found
