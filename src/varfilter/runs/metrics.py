"""The metrics of a run: a file of JSON lines, each with its checksum."""

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from varfilter._files import append, written
from varfilter.runs.checksums import is_sealed, sealed, unsealed

Line = dict[str, Any]


class Metrics(NamedTuple):
    """The lines of a file that are whole, in order, and what is wrong with the others.

    `damaged` has the numbers of the lines that are not whole (from 1) and the reasons; a last
    line that was cut short, as a crash leaves it, is neither here nor there.
    """

    lines: list[Line]
    damaged: dict[int, str]
    num_lines: int


def read_metrics(path: Path, *, need_checksums: bool) -> list[Line]:
    """The lines of the file, in order, or an error if one of them is damaged.

    A last line that was cut short is left out. `need_checksums` is False for files that version
    0.1.0 began, whose lines had none.
    """
    found = salvage_metrics(path, need_checksums=need_checksums)
    if found.damaged:
        number, reason = next(iter(found.damaged.items()))
        raise ValueError(
            f"{str(path)!r} is damaged in line {number} of {found.num_lines} ({reason}), so nothing"
            " was changed. To keep the lines that are whole:"
            f" `varfilter repair {shlex.quote(str(path.parent))}`."
        )
    return found.lines


def salvage_metrics(path: Path, *, need_checksums: bool) -> Metrics:
    """All that is whole in the file, and what is not."""
    if not path.exists():
        return Metrics([], {}, 0)
    *texts, rest = path.read_bytes().split(b"\n")
    lines: list[Line] = []
    damaged: dict[int, str] = {}
    for number, text in enumerate([*texts, rest] if rest else texts, 1):
        try:
            line = _read_line(text, need_checksums=need_checksums)
            if lines and need_checksums and line["step"] <= lines[-1]["step"]:
                raise ValueError(f"step {line['step']} comes after step {lines[-1]['step']}")
        except ValueError as error:
            # Without its end it was cut short; with one, and more behind it, it was changed.
            if number <= len(texts) or b'"checksum": "' in text[:-66]:
                damaged[number] = str(error)
            continue
        lines.append(line)
    return Metrics(lines, damaged, len(texts) + bool(rest))


def append_line(path: Path, line: Line) -> None:
    """Add a line, which is on the disk when this returns."""
    append(path, sealed(line) + b"\n")


def write_lines(path: Path, lines: list[Line]) -> None:
    """Put these lines in the place of all that the file holds."""
    content = b"".join(sealed(line) + b"\n" for line in lines)
    if not path.exists() or path.read_bytes() != content:
        with written(path) as put:
            put(content)


def _read_line(text: bytes, *, need_checksums: bool) -> Line:
    if need_checksums or is_sealed(text):
        line = unsealed(text)
    else:
        try:
            line = json.loads(text)
        except ValueError:
            raise ValueError("it is no JSON") from None
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        raise ValueError("it does not say at which step it was written")
    return line
