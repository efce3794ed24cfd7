"""How a command ends early: errors of the user's are one line, and signals let it save first."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
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


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """A context in which a first signal sets `is_asked`, and a second one interrupts at once.

    An exception in the middle of an update could not save it; and while the device works no
    exception would come through in any case.
    """

    def __init__(self):
        self.is_asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        # Not `print`: the signal may have come in the middle of one.
        os.write(2, b"\nStopping after these updates; again to stop at once.\n")
