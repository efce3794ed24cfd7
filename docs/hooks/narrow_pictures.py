"""Phones get pictures that were drawn for their width, while the site is built.

Where `pictures/NAME_narrow.png` lies beside `pictures/NAME.png`, a page that shows the latter names
both, and the browser takes the one that fits. Viewers of plain Markdown show the wide one.
"""

import re
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parent.parent / "pictures"
SHOWN = re.compile(r'<img [^>]*?src="((?:\.\./)*pictures/)([\w-]+)\.png"[^>]*>')
# As wide as the style sheet takes for a phone.
PHONE = "(max-width: 719px)"


def on_page_content(content: str, **_: Any) -> str:
    """Give each picture of a page its narrow one; mkdocs calls it for each page."""
    return SHOWN.sub(_in_two_widths, content)


def _in_two_widths(found: re.Match[str]) -> str:
    narrow = f"{found.group(2)}_narrow.png"
    if not (PICTURES / narrow).exists():
        return found.group(0)
    source = f'<source media="{PHONE}" srcset="{found.group(1)}{narrow}">'
    return f"<picture>{source}{found.group(0)}</picture>"
