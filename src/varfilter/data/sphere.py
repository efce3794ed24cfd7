"""NIST SPHERE, the sound files of TIMIT and other corpora: a text header, then plain samples."""

from pathlib import Path

import numpy as np

MAGIC = b"NIST_1A\n"
SHORTEN_MAGIC = b"ajkg"
BYTE_ORDERS = {"01": "<i2", "10": ">i2"}


def is_sphere(path: Path) -> bool:
    """Whether the file begins as SPHERE does; TIMIT's have names that end in .WAV."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_sphere(path: Path | str) -> tuple[np.ndarray, int]:
    """(samples, rate): int16, (time,) or, if there is more than one channel, (time, channels).

    Only plain 16-bit samples, in either byte order. Bytes after the last sample that the
    header announces are left out.
    """
    path = Path(path)
    data = path.read_bytes()
    size, fields = _header(data, path)
    coding = fields.get("sample_coding", "pcm")
    num_bytes = fields.get("sample_n_bytes", "2")
    if coding != "pcm" or num_bytes != "2" or data[size:].startswith(SHORTEN_MAGIC):
        raise ValueError(
            f"{path} must hold plain 16-bit samples; got the coding {coding!r} of {num_bytes}"
            " byte(s) (e.g. compressed by shorten). Convert it with: sph2pipe -p -f wav OLD NEW."
        )
    order = fields.get("sample_byte_format", "")
    if order not in BYTE_ORDERS:
        raise ValueError(
            f"{path} has `sample_byte_format` {order!r} in its SPHERE header; it must be 01 or 10."
            " Convert it with: sph2pipe -p -f wav OLD NEW."
        )
    rate = _whole("sample_rate", fields, path)
    channels = _whole("channel_count", {"channel_count": "1"} | fields, path)
    count = _whole("sample_count", fields, path) * channels
    got = (len(data) - size) // 2
    if got < count:
        raise ValueError(
            f"{path} is cut off: its SPHERE header announces {count} samples, {got} are there."
            " Copy it again."
        )
    samples = np.frombuffer(data, BYTE_ORDERS[order], count, size).astype(np.int16)
    return (samples.reshape(-1, channels) if channels > 1 else samples), rate


def _header(data: bytes, path: Path) -> tuple[int, dict[str, str]]:
    """Its size in bytes and its fields: lines `name -type value` up to `end_head`."""
    if not data.startswith(MAGIC):
        raise ValueError(f"{path} is not a SPHERE file: it does not begin with NIST_1A.")
    length = data[len(MAGIC) : len(MAGIC) + 8].strip()
    size = int(length) if length.isdigit() else 0
    fields: dict[str, str] = {}
    # Text of any language may stand in a comment: latin-1 reads every byte.
    for line in data[len(MAGIC) + 8 : size].decode("latin-1").splitlines():
        if line.strip() == "end_head" and size <= len(data):
            return size, fields
        match line.split(maxsplit=2):
            case [name, kind, value] if kind.startswith("-"):
                fields[name] = value.strip()
            case _:
                pass
    raise ValueError(f"{path} has a damaged SPHERE header: it does not end. Copy it again.")


def _whole(name: str, fields: dict[str, str], path: Path) -> int:
    value = fields.get(name, "")
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(
            f"{path} has a bad SPHERE header: `{name}` must be a whole number, at least 1; got"
            f" {value!r}. Repair or remove it."
        )
    return int(value)
