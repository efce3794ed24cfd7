"""Options and names of files stay on one line while the site is built: browsers break at dashes.

A line that ends in `--` and goes on with `help-all`, or in `goes-` and goes on with `on.mid`, reads
like a mistake. What is copied is the same.
"""

import re
from typing import Any

INLINE = re.compile(r"(?<!<pre>)<code>([^<]*)</code>")
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w.-]*")
# Commands in blocks, with the marks of their colours, and words of such that hold a dash. A phone
# has room for so many letters.
COMMANDS = re.compile(r'<div class="language-sh highlight">.*?</div>', re.DOTALL)
WORD = re.compile(r"(?<![\w./<=\"-])[\w./]*-[\w./-]+(?![^<]*>)")
MOST_LETTERS = 40


def on_page_content(content: str, **_: Any) -> str:
    """Mark the options of a page, and the words with dashes of its commands."""
    content = INLINE.sub(_marked, content)
    return COMMANDS.sub(lambda found: WORD.sub(_whole, found.group()), content)


def _marked(found: re.Match[str]) -> str:
    text = OPTION.sub(_whole, found.group(1))
    return f"<code>{text}</code>"


def _whole(found: re.Match[str]) -> str:
    word = found.group()
    return word if len(word) > MOST_LETTERS else f'<span class="option">{word}</span>'
