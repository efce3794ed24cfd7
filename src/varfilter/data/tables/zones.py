"""Time zones: from UTC, in which stamps are kept, to what a clock on the wall shows, and back.

A zone is called by its name, such as Europe/Berlin, or by its distance from UTC, UTC+01:00; times
of which nobody said in what zone they are have none, and are what the wall shows.
"""

import datetime as dt
import functools
import re
import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from varfilter.data.tables.spacing import DAY, Calendar, Even

FIXED = re.compile(r"UTC(?:([+-])(\d{2}):(\d{2})(?::(\d{2}))?)?")
SECOND = 1_000_000
# Zones in whose winter and summer most people live: of times that are written with offsets, one of
# these that had just those offsets stands for all that share its clocks.
COMMON = (
    "Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "America/Chicago",
    "America/Denver", "America/Los_Angeles", "America/Anchorage", "America/Halifax",
    "America/St_Johns", "America/Sao_Paulo", "America/Santiago", "America/Mexico_City",
    "Europe/Istanbul", "Europe/Moscow", "Asia/Jerusalem", "Asia/Tehran", "Africa/Cairo",
    "Australia/Sydney", "Australia/Adelaide", "Pacific/Auckland",
)  # fmt: skip


@dataclass(frozen=True)
class Local:
    """Steps of days, weeks or months as the clocks of a zone have them; stamps are in UTC."""

    steps: Even | Calendar
    zone: str

    @property
    def length(self) -> float | int:
        """How long a step is on average."""
        return self.steps.length

    def places(self, stamps: np.ndarray, origin: float | int) -> np.ndarray:
        """The grid point of each stamp, counted from that of `origin`."""
        return self.steps.places(on_wall(stamps, self.zone), self._origin(origin))

    def stamps(self, origin: float | int, places: np.ndarray) -> np.ndarray:
        """The stamp of each grid point, counted from `origin`."""
        return in_utc(self.steps.stamps(self._origin(origin), places), self.zone)

    def _origin(self, origin: float | int) -> int:
        return on_wall(np.array([origin], np.int64), self.zone)[0].item()


def in_zone(steps: Even | Calendar, zone: str | None) -> Even | Calendar | Local:
    """Steps in a zone: hours pass as they do, days and what is longer are those of its clocks."""
    is_short = isinstance(steps, Even) and bool(steps.length % DAY) and not steps.of_days
    return steps if not zone or is_short else Local(steps, zone)


def on_wall(stamps: np.ndarray, zone: str | None) -> np.ndarray:
    """Stamps in UTC as the stamps that the clocks of a zone show then."""
    return stamps + _offsets(stamps, zone) if zone else stamps


def in_utc(walls: np.ndarray, zone: str | None) -> np.ndarray:
    """What the clocks of a zone show, as stamps in UTC.

    Of an hour that comes twice it is the first; one that is left out is counted on from before.
    """
    if not zone:
        return walls
    before = walls - _offsets(walls - DAY, zone)
    after = walls - _offsets(walls + DAY, zone)
    is_before = on_wall(before, zone) == walls
    return np.where(is_before | (on_wall(after, zone) != walls), before, after)


def offset_text(stamp: Any, zone: str) -> str:
    """The offset from UTC that a zone has at a stamp, as +01:00."""
    return _offset_text(int(_offsets(np.array([stamp]), zone)[0]) // SECOND)


def zone_of(zone: Any) -> str:
    """The name of a zone of Python, pandas or polars; of one that cannot be named, UTC."""
    if isinstance(zone, str):
        name = zone
    else:
        found = re.search(r"zoneinfo/([\w/+-]+)", str(zone))  # as dateutil shows them
        name = getattr(zone, "key", None) or getattr(zone, "zone", None) or (found and found[1])
        name = name or _fixed(zone.utcoffset(None) or dt.timedelta(0))
    if FIXED.fullmatch(name):
        return name
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return "UTC"
    return name


def zone_of_offsets(stamps: Iterable[dt.datetime], offsets: Iterable[dt.timedelta]) -> str:
    """A zone that has these offsets at these times in UTC; UTC if none of the common ones has."""
    pairs = np.array(list(stamps), "datetime64[us]").astype(np.int64), list(offsets)
    if len(set(pairs[1])) == 1:
        return _fixed(pairs[1][0])
    wanted = np.array(pairs[1], "timedelta64[us]").astype(np.int64)
    fits = (zone for zone in COMMON if np.array_equal(_offsets(pairs[0], zone), wanted))
    return next(fits, "UTC")


def _fixed(offset: dt.timedelta) -> str:
    seconds = round(offset.total_seconds())
    return f"UTC{_offset_text(seconds)}" if seconds else "UTC"


def _offset_text(seconds: int) -> str:
    sign, (minutes, rest) = "-" if seconds < 0 else "+", divmod(abs(seconds), 60)
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}" + (f":{rest:02}" if rest else "")


def _offsets(stamps: np.ndarray, zone: str) -> np.ndarray:
    """The microseconds by which the clocks of a zone are ahead of UTC at each stamp."""
    if not len(stamps):
        return np.zeros(0, np.int64)
    if found := FIXED.fullmatch(zone):
        hours, minutes, seconds = (int(found[i] or 0) for i in (2, 3, 4))
        offset = (3600 * hours + 60 * minutes + seconds) * (-1 if found[1] == "-" else 1)
        return np.full(len(stamps), offset * SECOND, np.int64)
    years = stamps.astype("datetime64[us]").astype("datetime64[Y]").astype(np.int64) + 1970
    # Python knows no others; what is beyond them is a mistake, which is for others to tell.
    pairs = [_changes(zone, int(year)) for year in np.unique(np.clip(years, 2, 9998))]
    begins, offsets = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return offsets[np.maximum(np.searchsorted(begins, stamps // SECOND, side="right") - 1, 0)]


@functools.lru_cache(maxsize=2048)
def _changes(zone: str, year: int) -> tuple[np.ndarray, np.ndarray]:
    """The seconds of UTC from which on a zone has another offset in a year, and the offsets."""
    info, second = zoneinfo.ZoneInfo(zone), dt.timedelta(seconds=1)

    def offset(time: dt.datetime) -> dt.timedelta:
        return time.astimezone(info).utcoffset() or dt.timedelta(0)

    begin = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
    found = [(begin, offset(begin))]
    for day in range(1, 367):
        low, high = begin + dt.timedelta(day - 1), begin + dt.timedelta(day)
        if offset(high) == found[-1][1]:
            continue
        while high - low > second:
            middle = (low + (high - low) / 2).replace(microsecond=0)
            low, high = (middle, high) if offset(middle) == found[-1][1] else (low, middle)
        found.append((high, offset(high)))
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    seconds = [(time - epoch) // second for time, _ in found]
    return np.array(seconds), np.array([(each // second) * SECOND for _, each in found])
