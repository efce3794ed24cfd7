"""Signals: a command that is told to stop saves first, whatever it is doing, and leaves."""

import os
import signal
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

# Those that end a process politely: Ctrl-C, a scheduler, a terminal that is closed.
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# The exit code of a command that was told to stop.
STOPPED = 130
# How long what is under way may go on before it is left as it is, and done again another time.
PATIENCE = 2.0
SHOW_CURSOR = b"\x1b[?25h"


class Stopping:
    """A context that a signal ends politely, from its first moment on.

    A thread waits for signals: the one that works may be inside the compiler or on the device for
    minutes, where no handler of Python is called. As long as there is nothing to save, the process
    ends when a signal comes. After `save_with` it sets `is_asked` instead, which the worker looks
    at between updates; when it calls `take_over`, it saves and ends by itself. If it does not
    within some seconds, or at a second signal, the thread saves and ends the process.
    """

    def __init__(self):
        self.is_asked = False
        # Whether the process may end without others, which would wait for its part of the work.
        self.is_alone = True
        self._save: Callable[[], None] | None = None
        self._farewell: Callable[[], str] = lambda: "Stopped; there was nothing to save."
        # Held by whoever ends the process.
        self._ending = threading.Lock()
        self._before: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    def save_with(self, save: Callable[[], None], farewell: Callable[[], str]) -> None:
        """From now on there is something to save; `farewell` gives the last words."""
        with self._ending:
            self._save, self._farewell = save, farewell

    def take_over(self) -> None:
        """The worker saves and ends by itself."""
        self._ending.acquire()

    def __enter__(self) -> "Stopping":
        if threading.current_thread() is not threading.main_thread():
            return self  # which alone may handle signals
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            # What is ignored stays so: `nohup` asks for that, and shells for jobs behind them.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, lambda *_: None)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is None:
            return
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._fd)
        self._writer.close()  # and so the thread ends
        self._thread.join()
        self._reader.close()

    def _wait(self) -> None:
        while numbers := self._received(None):
            if any(number in SIGNALS for number in numbers):
                break
        else:
            return
        self.is_asked = True
        if self._save is not None or not self.is_alone:
            self._say(2, "\nStopping after these updates; again to stop at once.")
            if self._received(PATIENCE if self.is_alone else None) == b"":
                return
        self._end()

    def _received(self, timeout: float | None) -> bytes | None:
        """The numbers of the signals that came; none when the context is left, or in time."""
        self._reader.settimeout(timeout)
        try:
            return self._reader.recv(64)
        except TimeoutError:
            return None

    def _end(self) -> None:
        """End the process, unless the worker is about to."""
        if not self._ending.acquire(blocking=False):
            # It is saving. A second wish to stop at once has to wait for that alone.
            return
        code = STOPPED
        try:
            if self._save is not None:
                self._save()
            self._say(1, self._farewell())
        except Exception as error:
            self._say(2, str(error))
            code = 2
        if os.isatty(2):
            with suppress(OSError):
                os.write(2, SHOW_CURSOR)
        os._exit(code)

    def _say(self, descriptor: int, words: str) -> None:
        # Not `print`: the worker may be in the middle of one.
        try:
            os.write(descriptor, words.encode() + b"\n")
        except OSError:  # the terminal is gone, and what the worker writes is for nobody
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for each in (1, 2):
                with suppress(OSError):
                    if stat.S_ISCHR(os.fstat(each).st_mode):
                        os.dup2(nowhere, each)
