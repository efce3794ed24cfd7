"""The pages that varfilter writes: one HTML file each, with its pictures inside and no script."""

import base64
import html
from collections.abc import Iterable, Sequence

from varfilter.plots.style import NARROW, WIDE, Painter, png

# Columns that a phone has room for.
MOST_NARROW = 3
# Columns that a page has room for in letters of the usual size.
MOST_WIDE = 7
# A text of so many letters, such as a date with its time, stays on one line if it has digits.
MOST_LETTERS = 19
CSS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1c1c; --dim: #555; --line: #e4e4e4;
        --frame: #ddd; --number: #1f5fbf; --code: #f3f3f3; --marked: #eef4fc; --loud: #c62828;
        --loud-paper: #fdf1f0; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e4e6ea; --dim: #a3a9b3;
        --line: #33373f; --frame: #3d424b; --number: #7fb0ff; --code: #24282f; --marked: #1d2a3d;
        --loud: #ff7b72; --loud-paper: #2d1b1c; }
  img { filter: brightness(.92); } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 0 auto; padding: 1.5rem 1.2rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { margin-top: 2.6rem; }
h3 { margin: 1.8rem 0 .4rem; }
.lead { color: var(--dim); margin-top: 0; }
.loud { border-left: .3rem solid var(--loud); background: var(--loud-paper); padding: .6rem 1rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.4rem 0; }
.card { flex: 1 1 11rem; border: 1px solid var(--frame); border-radius: .5rem;
        padding: .7rem 1rem; }
.card b { display: block; font-size: 1.45rem; color: var(--number); }
.scroll { overflow-x: auto; margin-bottom: 1rem; }
.scroll td, .scroll th { overflow-wrap: normal; }
.scroll td.unbroken:not(:first-child) { white-space: nowrap; }
.scroll td:first-child { min-width: 8rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .7rem; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
tr.highlighted td { background: var(--marked); font-weight: 600; }
dl { display: grid; grid-template-columns: minmax(7rem, 11rem) 1fr; gap: .2rem 1rem; }
dt { color: var(--dim); } dd { margin: 0; min-width: 0; }
@media (max-width: 600px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; }
  body { padding: 1rem .8rem 3rem; } th, td { padding: .35rem .45rem; } }
@media (max-width: 600px) { .stacked tr:first-child { display: none; }
  .stacked tr { display: block; border-bottom: 2px solid var(--frame); padding: .4rem 0; }
  .stacked td { display: flex; justify-content: space-between; gap: 1rem; border: 0; }
  .stacked td:empty { display: none; } .stacked td:first-child { font-weight: 600; }
  .stacked td:not(:first-child)::before { content: attr(data-of); color: var(--dim);
    font-weight: 400; text-align: left; } }
@media (max-width: 600px) { .dense { font-size: .74rem; }
  .dense td, .dense th { padding: .25rem .2rem; overflow-wrap: normal; }
  .scroll .dense td:first-child { min-width: 4rem; } }
@media (min-width: 601px) { .wide { font-size: .84rem; }
  .wide td, .wide th { padding: .35rem .3rem; } }
img { max-width: 100%; height: auto; display: block; margin: .6rem 0; border-radius: .3rem; }
img.film { image-rendering: pixelated; } audio { width: 100%; max-width: 30rem; display: block; }
summary { cursor: pointer; color: var(--number); }
figcaption, .note { color: var(--dim); font-size: .92rem; } figure { margin: 1rem 0; }
code { background: var(--code); padding: .1rem .3rem; border-radius: .2rem; }
code span { display: inline-block; max-width: 100%; }
"""


def document(title: str, body: str) -> str:
    """The HTML of a whole page; `body` is HTML, `title` is text."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title><style>{CSS}</style></head><body>
{body}
</body></html>
"""


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    highlighted: Sequence[int] = (),
    is_dense: bool = False,
) -> str:
    """The HTML of texts in rows and columns; the rows numbered in `highlighted` stand out.

    On small screens, where there are many columns, each row is a list of its own; but of a table
    that `is_dense`, with many rows of short texts, the letters are smaller there.
    """
    head = list(head)
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = [
        ('<tr class="highlighted">' if number in highlighted else "<tr>")
        + "".join(
            f'<td data-of="{html.escape(of)}"{_unbroken(cell)}>{html.escape(cell)}</td>'
            for of, cell in zip(head, row, strict=True)
        )
        + "</tr>"
        for number, row in enumerate(rows)
    ]
    kind = ' class="stacked"' if len(head) > MOST_NARROW else ""
    kind = ' class="stacked wide"' if len(head) > MOST_WIDE else kind
    kind = ' class="dense"' if is_dense else kind
    return f'<div class="scroll"><table{kind}><tr>{cells}</tr>{"".join(lines)}</table></div>'


def _unbroken(cell: str) -> str:
    """The attribute of a cell that stays on one line: a number, a date."""
    is_short = len(cell) <= MOST_LETTERS and any(letter.isdigit() for letter in cell)
    return ' class="unbroken"' if is_short else ""


def cards(pairs: Iterable[tuple[str, str]]) -> str:
    """The HTML of the few numbers that matter most, each with what it is."""
    inner = "".join(
        f'<div class="card"><b>{html.escape(value)}</b>{html.escape(text)}</div>'
        for value, text in pairs
    )
    return f'<div class="cards">{inner}</div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """The HTML of a list of names and what is known of them; the latter is HTML already."""
    inner = "".join(f"<dt>{html.escape(name)}</dt><dd>{value}</dd>" for name, value in pairs)
    return f"<dl>{inner}</dl>"


def illustration(paint: Painter, caption: str) -> str:
    """The HTML of a figure with its caption, in two widths, of which the browser shows one."""
    text = html.escape(caption)
    small = f'<source media="(max-width: 600px)" srcset="{_inside(png(paint(NARROW)))}">'
    image = f'<img alt="{text}" src="{_inside(png(paint(WIDE)))}">'
    return f"<figure><picture>{small}{image}</picture><figcaption>{text}</figcaption></figure>"


def player(kind: str, content: bytes, caption: str) -> str:
    """The HTML of a recording with its caption: sound to be played, or a film that repeats."""
    text, inside = html.escape(caption), _inside(content, kind)
    if kind.startswith("audio/"):
        shown = f'<audio controls preload="metadata" src="{inside}"></audio>'
    else:
        shown = f'<img class="film" alt="{text}" src="{inside}">'
    return f"<figure>{shown}<figcaption>{text}</figcaption></figure>"


def command_line(words: str) -> str:
    """The HTML of a command line, which breaks before its options and not within them."""
    parts = words.replace(" --", "\n--").split("\n")
    return f"<code>{' '.join(f'<span>{html.escape(part)}</span>' for part in parts)}</code>"


def _inside(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
