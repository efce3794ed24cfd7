"""Headers of NIST SPHERE, in which much speech is distributed (TIMIT, Switchboard)."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# A SPHERE file begins with these bytes; the samples of one that shorten compressed, with those.
SPHERE, SHORTEN = b"NIST_1A\n", b"ajkg"
# By the coding of the samples in a SPHERE header and their bytes, libsndfile's names.
CODINGS = {
    ("pcm", "2"): "PCM_16",
    ("ulaw", "1"): "ULAW",
    ("mu-law", "1"): "ULAW",
    ("alaw", "1"): "ALAW",
}
BYTE_ORDERS = {"01": "LITTLE", "10": "BIG"}


class FilePart(io.FileIO):
    """The bytes of a file from `begin` to `end`, as a file of their own."""

    def __init__(self, path: Path, begin: int, end: int):
        super().__init__(path)
        self.begin, self.end = begin, end
        self.seek(0)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place that is counted from `begin`, the current place or `end`."""
        starts = {io.SEEK_SET: self.begin, io.SEEK_CUR: super().tell(), io.SEEK_END: self.end}
        return super().seek(starts[whence] + offset) - self.begin

    def tell(self) -> int:
        """The current place, counted from `begin`."""
        return super().tell() - self.begin


def samples_of_sphere(path: Path) -> tuple[FilePart, dict[str, Any]]:
    """The samples of a SPHERE file, and what libsndfile must know to decode them.

    libsndfile reads SPHERE headers too, but not how many samples they announce: it takes a file
    that is cut off for a whole one, and what follows the samples for sound. So the header is read
    here, and the samples are decoded there.
    """
    begin, fields = _sphere_header(path)
    coding, num_bytes = fields.get("sample_coding", "pcm"), fields.get("sample_n_bytes", "2")
    with FilePart(path, begin, begin) as file:
        is_shortened = file.read(len(SHORTEN)) == SHORTEN
    if is_shortened or (coding, num_bytes) not in CODINGS:
        raise ValueError(
            f"{path} must hold plain 16-bit, mu-law or A-law samples; got the coding {coding!r} of"
            f" {num_bytes} byte(s){' (compressed by shorten)' * is_shortened}."
            " Convert it with: sph2pipe -p -f wav OLD NEW."
        )
    order = fields.get("sample_byte_format", "")
    if num_bytes == "2" and order not in BYTE_ORDERS:
        raise ValueError(
            f"{path} has `sample_byte_format` {order!r} in its SPHERE header; it must be 01 or 10."
            " Convert it with: sph2pipe -p -f wav OLD NEW."
        )
    rate = _whole_field("sample_rate", fields, path)
    channels = _whole_field("channel_count", {"channel_count": "1"} | fields, path)
    announced = _whole_field("sample_count", fields, path) * channels
    got = (path.stat().st_size - begin) // int(num_bytes)
    if got < announced:
        raise ValueError(
            f"{path} is cut off: its SPHERE header announces {announced} samples, {got} are there."
            " Copy it again."
        )
    form = {
        "format": "RAW",
        "subtype": CODINGS[coding, num_bytes],
        "endian": BYTE_ORDERS.get(order, "FILE"),
        "samplerate": rate,
        "channels": channels,
    }
    return FilePart(path, begin, begin + announced * int(num_bytes)), form


def _sphere_header(path: Path) -> tuple[int, dict[str, str]]:
    """The size of a SPHERE header in bytes, and its lines `name -type value` up to `end_head`."""
    with path.open("rb") as file:
        length = file.read(len(SPHERE) + 8)[len(SPHERE) :].strip()
        size = int(length) if length.isdigit() else 0
        # Text of any language may stand in a comment: latin-1 reads every byte.
        rest = min(size, path.stat().st_size) - len(SPHERE) - 8
        text = file.read(max(rest, 0)).decode("latin-1")
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() == "end_head" and size <= path.stat().st_size:
            return size, fields
        match line.split(maxsplit=2):
            case [name, kind, value] if kind.startswith("-"):
                fields[name] = value.strip()
            case _:
                pass
    raise ValueError(f"{path} has a damaged SPHERE header: it does not end. Copy it again.")


def _whole_field(name: str, fields: Mapping[str, str], path: Path) -> int:
    value = fields.get(name, "")
    # Nine digits: what is more, no machine reads, and no library takes.
    if not value.isdecimal() or len(value) > 9 or int(value) < 1:
        raise ValueError(
            f"{path} has a bad SPHERE header: `{name}` must be a whole number, at least 1 and of at"
            f" most nine digits; got {value[:40]!r}. Repair or remove it."
        )
    return int(value)
