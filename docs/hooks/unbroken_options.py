"""Options stay on one line while the site is built: browsers break words behind each dash.

A line that ends in `--` and goes on with `help-all` reads like a mistake. In blocks of code nothing
changes, and what is copied is the same.
"""

import re
from typing import Any

INLINE = re.compile(r"(?<!<pre>)<code>([^<]*)</code>")
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w.-]*")


def on_page_content(content: str, **_: Any) -> str:
    """Mark the options of a page; mkdocs calls it for each."""
    return INLINE.sub(_marked, content)


def _marked(found: re.Match[str]) -> str:
    text = OPTION.sub(r'<span class="option">\g<0></span>', found.group(1))
    return f"<code>{text}</code>"
