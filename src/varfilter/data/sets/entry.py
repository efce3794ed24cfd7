"""What is known of a data set that has a name: where it comes from, what it holds, who reads it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from varfilter.data.dataset import Dataset, Family
from varfilter.distributions import DiscretizedNormal


@dataclass(frozen=True)
class Item:
    """One file to download: its name here, its addresses, first choice first, and its digest.

    `place` is given for an archive that is to be unpacked: it says under which name in the set's
    folder a member of the archive is written, or None for a member that is left out.
    """

    name: str
    urls: tuple[str, ...]
    digest: str = ""
    place: Callable[[str], str | None] | None = None


@dataclass(frozen=True)
class Expected:
    """What a set holds as read without options: counts by split, and `Dataset.sha256`.

    `files_sha256` is what `sha256sum * | sha256sum` prints for those files of the set's folder
    that match `files` ("*.avi"): pixels may depend on the decoder, files do not. `is_binding` is
    False where other content of the same counts may be as right: videos that are copied in
    another encoding, numbers drawn by a library.
    """

    sequences: tuple[int, int, int]
    rows: tuple[int, int, int] | None = None
    sha256: str = ""
    files: str = ""
    files_sha256: str = ""
    is_binding: bool = True


class Judgement(NamedTuple):
    """Whether a named set is not wrong, whether it is proven right, and why, line by line."""

    is_good: bool
    is_verified: bool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A data set that has a name.

    Its functions are named by strings such as "varfilter.data.sets.videos:kth", and imported when
    they are first called: to know a set is not to load the readers of sound and video.

    - `medium`: what it records, by the name that the medium has in `varfilter.media`.
    - `observation`: the shape of one observation, as read without options.
    - `family`: the distribution of its elements; what the width of a level is, the reader says.
    - `reader`: the function that reads it from the place where it lies, with options.
    - `checker`: the function that judges the set, where comparing it with `expected` is not all.
    - `places`: where it may lie in the data folder, the usual place first; none: it is simulated.
    - `sources`: ways to get it, each a tuple of files, first choice first; none: by hand.
    - `needs`: the library that reads it, and the extra of varfilter that brings the library.
    - `by_hand`: what to do if it cannot be fetched.
    - `is_large`: decoding takes minutes, and the result is stored.
    """

    name: str
    what: str
    licence: str
    medium: str
    observation: tuple[int, ...]
    reader: str
    expected: Expected
    checker: str = ""
    places: tuple[str, ...] = ()
    sources: tuple[tuple[Item, ...], ...] = ()
    needs: tuple[str, str] | None = None
    by_hand: str = ""
    is_large: bool = False
    family: Family = Family(DiscretizedNormal, width=1.0)  # noqa: RUF009

    @property
    def read(self) -> Callable[..., Dataset]:
        """The function that `reader` names, imported now."""
        return _imported(self.reader)

    @property
    def check(self) -> Callable[[Dataset], Judgement] | None:
        """The function that `checker` names, imported now; None if the set has none of its own."""
        return _imported(self.checker) if self.checker else None


def _imported(reference: str) -> Any:
    module, _, function = reference.partition(":")
    return getattr(importlib.import_module(module), function)
