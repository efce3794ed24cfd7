"""Records as JSON that carry their own checksum: any byte that changes later is noticed."""

import hashlib
import json
import re
from typing import Any

# The last entry of a record, in one line or over several.
SEAL = re.compile(
    rb'(?P<body>.*),(?:\n "checksum": "(?P<long>[0-9a-f]{64})"\n\}|'
    rb' "checksum": "(?P<short>[0-9a-f]{64})"\})',
    re.DOTALL,
)


def sealed(record: dict[str, Any], *, indent: int | None = None) -> bytes:
    """A record as JSON whose last entry is the SHA-256 of all that stands before it.

    `indent` 1 gives each entry a line; None gives all in one.
    """
    body, end = json.dumps(record, indent=indent).encode(), b"}" if indent is None else b"\n}"
    body = body.removesuffix(end)
    before = b" " if indent is None else b"\n "
    digest = hashlib.sha256(body).hexdigest().encode()
    return body + b"," + before + b'"checksum": "' + digest + b'"' + end


def is_sealed(text: bytes) -> bool:
    """Whether a text ends with a checksum, right or wrong."""
    return SEAL.fullmatch(text) is not None


def is_intact(text: bytes) -> bool:
    """Whether a text ends with the right checksum."""
    try:
        unsealed(text)
    except ValueError:
        return False
    return True


def unsealed(text: bytes) -> dict[str, Any]:
    """Read what `sealed` wrote; a ValueError says what is wrong with it."""
    found = SEAL.fullmatch(text)
    if found is None:
        raise ValueError("it has no checksum at its end")
    digest = found["long"] or found["short"]
    if hashlib.sha256(found["body"]).hexdigest().encode() != digest:
        raise ValueError("its checksum does not match its contents")
    record = dict(json.loads(text))
    del record["checksum"]
    return record
