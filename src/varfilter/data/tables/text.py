"""Tables of text: what separates fields, what the columns are called, and rows that are not whole.

The values are read by polars. The names are read here, since polars changes those that are there
twice; and the lines are counted here, since it fills short ones up without a word.
"""

import codecs
import csv
import gzip
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import require_library
from varfilter.data.limits import require_expansion, require_size
from varfilter.data.tables.columns import MISSING

NEWLINE, QUOTE, RETURN = b'\n"\r'
CHUNK = 1 << 20
# Bytes in memory: for each byte of the text, for each cell, and for each column.
PER_BYTE, PER_CELL, PER_COLUMN = 6, 24, 4096
# So many line numbers are told one by one.
MOST_TOLD = 6


class TextTable(NamedTuple):
    """A frame whose columns have numbers for names; their own names; sentences on the file."""

    frame: Any
    names: list[str]
    notes: tuple[str, ...]


def read_text(path: Path, label: str, as_text: tuple[str, ...]) -> TextTable:
    """A table of text, packed or not; the columns `as_text` hold names, not numbers."""
    polars = require_library("polars", extra="tables")
    content, encoding = _utf8(_content(path, label), label)
    names, separator, begin = _header(content, label)
    lines = _lines(content, begin, separator, label)
    cells = len(lines.begins) * len(names)
    require_size(
        f"{label} has {len(names)} columns in {len(lines.begins)} lines",
        PER_BYTE * len(content) + PER_CELL * cells + PER_COLUMN * len(names),
    )
    lines.require_even(len(names), separator, label)
    notes = lines.notes(len(names))
    if encoding != "utf-8":
        notes = (f"The file was read as {encoding}, because it is not UTF-8.", *notes)
    numbers = [str(number) for number in range(len(names))]
    try:
        frame = polars.read_csv(
            separator.join(numbers).encode() + b"\n" + content[begin:],
            separator=separator,
            null_values=sorted({f for m in MISSING for f in (m, m.upper(), m.title(), "NaN")}),
            infer_schema_length=None,
            schema_overrides={
                number: polars.String
                for number, name in zip(numbers, names, strict=True)
                if name in as_text
            },
            glob=False,
        )
    except polars.exceptions.PolarsError as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        told = re.sub(r"column '(\d+)'", lambda found: f"column {names[int(found[1])]!r}", first)
        raise ValueError(f"{label} cannot be read as a table: {told.rstrip(' .')}.") from None
    # Empty lines at the end of a file are not steps.
    empty = frame.select(polars.all_horizontal(polars.all().is_null())).to_series().to_numpy()
    kept = len(empty) - int(np.argmin(empty[::-1])) if not empty.all() else 0
    return TextTable(frame[:kept], names, notes)


def _content(path: Path, label: str) -> bytes:
    """The bytes of a file; of a packed one they are counted as they come."""
    size = path.stat().st_size
    if path.suffix.lower() != ".gz":
        require_size(f"{label} has {size} bytes", PER_BYTE * size)
        return path.read_bytes()
    parts, total = [], 0
    with gzip.open(path) as file:
        while part := file.read(CHUNK):
            parts.append(part)
            total += len(part)
            what = f"{label} unpacks to {total} bytes or more"
            require_expansion(what, total, size)
            require_size(what, PER_BYTE * total)
    return b"".join(parts)


def _utf8(content: bytes, label: str) -> tuple[bytes, str]:
    """The text in UTF-8, and how it was encoded."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        tried = ("utf-16",)
    elif b"\0" in content:
        tried = ()
    else:
        tried = ("utf-8", "cp1252")
    for encoding in tried:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding == "utf-8":
            return content.removeprefix(codecs.BOM_UTF8), encoding
        return text.removeprefix("\ufeff").encode(), encoding
    raise ValueError(
        f"{label} is not text. Give a table of text, in UTF-8, or one whose name tells its kind"
        " (.parquet, .npy, .npz)."
    )


def _header(content: bytes, label: str) -> tuple[list[str], str, int]:
    """The names of the columns, what separates them, and where the first row begins."""
    begin = _end_of_line(content)
    header = content[:begin].decode().strip("\r\n")
    separator = max(",;\t", key=header.count)
    limit = csv.field_size_limit(len(header) + 1)
    try:
        names = next(csv.reader(header.splitlines(keepends=True), delimiter=separator), [])
    finally:
        csv.field_size_limit(limit)
    if names and all(_is_number(name) for name in names):
        raise ValueError(
            f"{label} begins with numbers ({header[:40]!r}), not with the names of its columns."
            " Give it a first line of names, or read it yourself and give the array."
        )
    names = [name.strip() for name in names]
    require_different(names, label)
    return names, separator, begin


def require_different(names: list[str], label: str) -> None:
    """Refuse two columns of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{label} has two columns {twice[0]!r}. Give each its own name.")


def _end_of_line(content: bytes) -> int:
    """Where the line of names ends: a name in quotes may have several lines."""
    end = num_quotes = 0
    while True:
        begin, end = end, content.find(b"\n", end) + 1
        if end == 0:
            return len(content)
        num_quotes += content.count(b'"', begin, end)
        if num_quotes % 2 == 0:
            return end


class _Lines(NamedTuple):
    """Where each row begins in the text, how many fields it has, and whether it is blank."""

    content: bytes
    begins: np.ndarray
    num_fields: np.ndarray
    is_blank: np.ndarray

    def number(self, row: int) -> int:
        """The number of the line that a row begins with, counted from 1."""
        return self.content.count(b"\n", 0, int(self.begins[row])) + 1

    def require_even(self, num_columns: int, separator: str, label: str) -> None:
        """An error that names the first line with more fields than there are names."""
        long = np.flatnonzero(self.num_fields > num_columns)
        if long.size:
            raise ValueError(
                f"{label} has {self.num_fields[long[0]]} fields in line {self.number(long[0])},"
                f" more fields than the {num_columns} that line 1 names. Remove lines before that"
                f" of the names (such as comments), and put text that holds {separator!r} in"
                " quotes."
            )

    def notes(self, num_columns: int) -> tuple[str, ...]:
        """Sentences on rows that are short, and on a file that does not end with a whole line."""
        if not len(self.begins):
            return ()
        is_short = (self.num_fields < num_columns) & ~self.is_blank
        last = len(self.begins) - 1
        is_open = not self.content.endswith((b"\n", b"\r")) and not self.is_blank[last]
        is_cut = bool(is_short[last]) and is_open
        short = np.flatnonzero(is_short[:last] if is_cut else is_short)
        notes = []
        if short.size:
            told = ", ".join(str(self.number(row)) for row in short[:MOST_TOLD])
            rest = f" and {short.size - MOST_TOLD} more" if short.size > MOST_TOLD else ""
            what = "Line" if short.size == 1 else "Lines"
            notes.append(
                f"{what} {told}{rest}: fewer fields than the {num_columns} columns. What is not"
                " there is taken as missing."
            )
        if is_cut:
            notes.append(
                f"Line {self.number(last)}, the last, breaks off: it has {self.num_fields[last]} of"
                f" {num_columns} fields. The rest is taken as missing, and its last value may be"
                " cut short."
            )
        elif is_open:
            notes.append(
                f"Line {self.number(last)}, the last, has no end: if the file was cut off, its last"
                " value may be cut short."
            )
        return tuple(notes)


def _lines(content: bytes, begin: int, separator: str, label: str) -> _Lines:
    """The rows below the line of names; what stands in quotes ends neither rows nor fields."""
    text = np.frombuffer(content, np.uint8)[begin:]
    is_end, is_separator = text == NEWLINE, text == ord(separator)
    is_quote = text == QUOTE
    if is_quote.any():
        # A quote in quotes is written twice: it ends and begins again.
        outside = np.bitwise_xor.accumulate(is_quote.view(np.uint8)) == 0
        if not outside[-1]:
            first = begin + int(np.flatnonzero(is_quote & ~outside)[-1])
            line = content.count(b"\n", 0, first) + 1
            raise ValueError(
                f"{label} has a quote in line {line} or before it that does not end. Put text with"
                " quotes in quotes, and write each of its own twice; or copy the file again if it"
                " was cut off."
            )
        is_end &= outside
        is_separator &= outside
    begins = np.concatenate([np.zeros(min(len(text), 1), np.int64), np.flatnonzero(is_end) + 1])
    begins = begins[begins < len(text)]
    if not begins.size:
        return _Lines(content, begins, begins, begins > 0)
    num_fields = np.add.reduceat(is_separator, begins, dtype=np.int64) + 1
    sizes = np.diff(np.append(begins, len(text)))
    is_blank = (sizes == 1) | ((sizes == 2) & (text[begins] == RETURN))
    is_blank &= (text[begins] == NEWLINE) | (text[begins] == RETURN)
    return _Lines(content, begins + begin, num_fields, is_blank)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
