"""Where commands write: lines that hold nothing but what can be read."""

import sys
from typing import Any

from varfilter._text import printable


def say(*lines: Any) -> None:
    """Write lines of a command's result to standard output."""
    for line in lines:
        print(printable(str(line)))


def tell(*lines: Any) -> None:
    """Write lines on how a command gets on, or why it does not, to standard error, at once."""
    for line in lines:
        print(printable(str(line)), file=sys.stderr, flush=True)
