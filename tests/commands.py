"""Commands of `varfilter` in this process, so that they share its compiled programs; and scripts.

A test starts a process only where it needs one: to kill it, to see what it imports, or to run a
program as its reader does, without the strict settings of the tests.
"""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from varfilter import cli
from varfilter.cli.compiled import ENOUGH, LEVEL

SCRIPT = Path(__file__).parent / "script.py"
# `varfilter` as a script, for commands that need a process.
PROGRAM = Path(cli.__file__).parent.parent / "__main__.py"
# What `conftest.py` sets to compile in less time programs that run once.
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS"}
# With these a process that nobody kills finds the programs that others have compiled.
SHARED = {
    "JAX_COMPILATION_CACHE_DIR": os.environ["VARFILTER_TEST_PROGRAMS"],
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


class Result(NamedTuple):
    """What is left of a command: its exit code and what it wrote."""

    code: int
    out: str
    err: str


def command(
    *words: object,
    cwd: str | Path | None = None,
    stdin: str | bytes = b"",
    env: dict[str, str] | None = None,
) -> Result:
    """Run `varfilter WORDS...` as its entry point does.

    - `words`: each is turned into text, so that paths and numbers may be given.
    - `cwd`: the folder it runs in; else that of the test.
    - `stdin`: what it reads there.
    - `env`: environment variables that it sees beside the others. (What JAX reads when it is
      imported has no effect here: such a command needs a process of its own.)

    An exception that would end the process with a traceback is raised to the test.
    """
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = _stream(), _stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["varfilter", *map(str, words)])
        patch.setattr(sys, "stdin", _stream(given))
        # Of a pipe, whatever the width of the terminal from which the tests are run.
        patch.setenv("COLUMNS", "80")
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        with redirect_stdout(out), redirect_stderr(err):
            code = _exit_code()
    return Result(code, _text(out), _text(err))


def succeed(*words: object, **options) -> Result:
    """Run a command that must end well; what it wrote to stderr is shown if it does not."""
    result = command(*words, **options)
    assert result.code == 0, result.out + result.err
    return result


def refuse(*words: object, **options) -> str:
    """Run a command that must be refused: code 2, nothing on stdout; returns the message."""
    result = command(*words, **options)
    assert result.code == 2, result
    assert result.out == ""
    assert "Traceback" not in result.err
    return result.err


def script(
    path: str | Path,
    *words: object,
    cwd: str | Path | None = None,
    is_optimized: bool = False,
    timeout: float = 900.0,
) -> Result:
    """Run a Python file in a process of its own; warnings of our own code end it.

    - `is_optimized`: compiled as `varfilter` compiles, which takes less time where it computes for
      longer than it compiles.
    """
    unset = QUICK if is_optimized else set()
    flags = {"XLA_FLAGS": f"{LEVEL}={ENOUGH}"} if is_optimized else {}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(path), *map(str, words)],
        env={name: value for name, value in os.environ.items() if name not in unset}
        | SHARED
        | flags,
        cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


def _exit_code() -> int:
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    return 0


def _stream(content: bytes = b"") -> io.TextIOWrapper:
    """A pipe in memory: text or, by its `buffer`, bytes; lines end as they were written."""
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="" if content else None)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8").replace(os.linesep, "\n")
