"""A table or a figure of the paper beside ours, as a page and as Markdown."""

import html
from typing import Any

from varfilter import _page
from varfilter.report.page import ABOUT_RESULTS, nats

HEAD = ("experiment", "data", "nats per step", "standard error", "paper, corrected",
        "divided by T", "paper, printed", "trained")  # fmt: skip


def paper_page(numbers: dict[str, Any], figures: list[str]) -> str:
    """The whole page; `figures` are HTML."""
    warnings = "".join(f'<p class="loud">{html.escape(text)}</p>' for text in warnings_of(numbers))
    absent = [row for row in numbers["rows"] if row["missing"]]
    commands = [row["command"] for row in numbers["rows"] if row["results"]]
    body = [
        f"<h1>{html.escape(numbers['title'])}</h1>",
        f'<p class="lead">Ours beside those of the paper. Scored with seed {numbers["seed"]}.</p>',
        warnings,
        *figures,
        _page.table(HEAD, [cells(row) for row in numbers["rows"]]),
        f'<p class="note">{html.escape(ABOUT_RESULTS)}</p>',
    ]
    if absent:
        listed = [(row["wanted"], html.escape(row["missing"])) for row in absent]
        body += ["<h2>What is missing</h2>", _page.facts(listed)]
    if commands:
        items = "".join(f"<li><code>{html.escape(line)}</code></li>" for line in commands)
        body += ["<h2>The runs, each by itself</h2>", f"<ul>{items}</ul>"]
    return _page.document(f"varfilter: {numbers['title']}", "\n".join(body))


def paper_markdown(numbers: dict[str, Any]) -> str:
    """The same table for a README."""
    lines = [f"# {numbers['title']}", ""]
    lines += [f"**{text}**\n" for text in warnings_of(numbers)]
    rows = [HEAD, ["---", "---", *["---:"] * (len(HEAD) - 3), "---"], *map(cells, numbers["rows"])]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines += ["", ABOUT_RESULTS]
    for row in numbers["rows"]:
        if row["missing"]:
            lines += ["", f"{row['wanted']} is missing: {row['missing']}"]
    return "\n".join(lines) + "\n"


def cells(row: dict[str, Any]) -> list[str]:
    """Of one experiment."""
    published, results = row["published"] or {}, row["results"]
    paper = nats(published.get("corrected")), nats(published.get("nats"))
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
        f"{row['num_updates']:,} updates",
    ]


def warnings_of(numbers: dict[str, Any]) -> list[str]:
    """What a reader must know before the numbers."""
    found = []
    if numbers["max_updates"] is not None:
        found.append(
            f"A short try: at most {numbers['max_updates']:,} updates each. These numbers say"
            " nothing of the method."
        )
    if others := sorted({row["data"] for row in numbers["rows"] if row["is_at_hand"]}):
        found.append(
            f"OTHER DATA: {', '.join(others)} in the place of the paper's, which are licensed and"
            " not here. The numbers do not compare with the paper's."
        )
    return found
