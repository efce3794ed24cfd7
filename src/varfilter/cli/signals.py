"""Ctrl-C and SIGTERM while training: asked once, it ends between two updates, saved."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """As a context: `is_asked` once a signal has come; a second one interrupts at once.

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
