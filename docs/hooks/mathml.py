"""Formulas become MathML while the site is built.

Browsers draw MathML by themselves, so that a page needs no script, fetches nothing, and reads the
same from a disk without a network. `pymdownx.arithmatex` finds the formulas, `$...$` and `$$...$$`,
and marks them; here each is translated. Viewers of plain Markdown that know TeX show them too.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# A relation that a group begins with, as in x_{<t}, relates to nothing: no room round it.
LEADING = re.compile(r"<mrow><mo>(&#x0003C;|&#x02264;)</mo>")
# A logarithm stands apart from what it is of; a parenthesis does that by itself.
LOGARITHM = re.compile(r"(<mi>log</mi>)(?!<mo[^>]*>&#x00028;)")
# A brace that stretches comes out a speck where no font for mathematics is installed, as on many
# phones, and too short in some that are: a line of the style sheet stands in its place.
BRACE = re.compile(r"<munder><mrow>((?:(?!<munder>).)*?)</mrow><mo>&#x23DF;</mo></munder>")
MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Translate the formulas of a page; mkdocs calls it for each."""
    return MARKED.sub(_translated, content)


def _translated(found: re.Match[str]) -> str:
    tag, tex = found.group(1), html.unescape(found.group(2)).strip()
    formula = convert(tex, display="block" if tag == "div" else "inline")
    formula = LEADING.sub(r'<mrow><mo lspace="0" rspace="0">\1</mo>', formula)
    formula = LOGARITHM.sub(r'\1<mspace width="0.167em"/>', formula)
    formula = BRACE.sub(r'<mrow class="braced">\1</mrow>', formula)
    return f'<{tag} class="formula">{formula}</{tag}>'
