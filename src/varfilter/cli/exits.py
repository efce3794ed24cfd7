"""How a command ends before it is done: by an error of the user's, or by a signal.

An error is one line. A command that is told to stop saves first, whatever it is doing, and leaves.
"""

import errno
import os
import signal
import socket
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from varfilter._text import in_options, tell

# Those that end a process politely: Ctrl-C, a scheduler, a terminal that is closed.
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# The exit code of a command that was told to stop.
STOPPED = 130
# How long what is under way may go on before it is left as it is, and done again another time.
PATIENCE = 2.0
SHOW_CURSOR = b"\x1b[?25h"


@dataclass
class Refused:
    """The exit code of a command that went through `refusals`.

    `options` gives the options of the command by the names of the arguments that they become; it is
    asked when there is something to tell.
    """

    code: int = 0
    options: Callable[[], Mapping[str, str]] = dict


@contextmanager
def naming(**options: str) -> Iterator[None]:
    """Have errors from within name the options, in place of the arguments that they became."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (in_options(error.args[0], options),)
        raise


@contextmanager
def refusals(
    smaller: str = "Give a smaller --size, a lower --rate, or fewer files.",
    options: Callable[[], Mapping[str, str]] = dict,
) -> Iterator[Refused]:
    """One line on stderr for what the user can put right; `smaller` is said when memory is out.

    The line names `options` where the library names the arguments that they became. Warnings are a
    line each, without the place in the code; what libraries announce to those who call them
    (deprecations) is not for the users of a command.
    """
    refused = Refused(options=options)

    def shown(message: Warning | str, *rest: Any, **more: Any) -> None:
        _show_warning(in_options(str(message), refused.options()), *rest, **more)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = shown
            yield refused
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        if isinstance(error, OSError) and error.errno == errno.EIO and _terminal_is_gone():
            # A word of ours came before the signal; there is nobody to tell.
            refused.code = STOPPED
            return
        # On one line, whatever a library wrote.
        tell(in_options(" ".join(str(error).splitlines()), refused.options()))
        refused.code = 2
    except MemoryError as error:
        reason = str(error).rstrip(".") or "out of memory"
        tell(f"There is not enough memory for this ({reason}). {smaller}")
        refused.code = 2
    except RuntimeError as error:
        # What the accelerator's runtime says when its memory is full.
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        tell(f"The device has not enough memory for this. {smaller}")
        refused.code = 2
    except KeyboardInterrupt:
        tell("Interrupted.")
        refused.code = STOPPED


def _terminal_is_gone() -> bool:
    """Whether what was a terminal is none any more: its window was closed, its connection lost."""
    if sys.platform == "win32":
        return False
    import termios

    for stream in (1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:  # of files and pipes it says that they never were one
            if error.args[0] == errno.EIO:
                return True
    return False


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
        # Prints above a picture that is drawn again and again; written past it, a line would be
        # drawn over, and the picture be left twice.
        self.print_above: Callable[[str], Any] | None = None
        # Held by whoever ends the process.
        self._ending = threading.Lock()
        self._before: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    def save_with(self, save: Callable[[], None], farewell: Callable[[], str]) -> None:
        """Note that from now on there is something to save; `farewell` gives the last words."""
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
            notice = "Stopping after these updates; again to stop at once."
            if self.print_above is None:
                self._say(2, f"\n{notice}")
            else:
                self.print_above(notice)
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


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        tell(message)
