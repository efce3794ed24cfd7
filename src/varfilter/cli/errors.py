"""How a command ends that cannot do what it was asked: errors of the user's are one line."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Refused:
    """The exit code of a command that went through `refusals`."""

    code: int = 0


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        print(message, file=sys.stderr)


@contextmanager
def refusals(
    smaller: str = "Give a smaller --size, a lower --rate, or fewer files.",
) -> Iterator[Refused]:
    """One line on stderr for what the user can put right; `smaller` is said when memory is out.

    Warnings are a line each, without the place in the code; what libraries announce to those who
    call them (deprecations) is not for the users of a command.
    """
    refused = Refused()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            yield refused
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(error, file=sys.stderr)
        refused.code = 2
    except MemoryError as error:
        print(
            f"There is not enough memory for this ({str(error).rstrip('.') or 'out of memory'})."
            f" {smaller}",
            file=sys.stderr,
        )
        refused.code = 2
    except RuntimeError as error:
        # What the accelerator's runtime says when its memory is full.
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print(f"The device has not enough memory for this. {smaller}", file=sys.stderr)
        refused.code = 2
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        refused.code = 130
