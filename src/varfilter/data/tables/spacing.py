"""How the steps of a table lie in time: evenly, or as the calendar has them.

A month is no number of seconds, and neither is the step from a Friday to a Monday. On a grid of the
calendar a monthly table has no gaps, and its forecasts lie where its next rows will.

Stamps are whole microseconds of dates, or numbers (`Clock`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

DAY = 86_400_000_000  # in microseconds
# With fewer distances between rows there is no telling a month from 31 days.
FEWEST_DISTANCES = 2
# One row in each month by chance: distances that are not too few for that, and differ.
FEWEST_ANYWHERE = 6
# Above this share of distances with a gap between them a step is too short to be the usual one.
MOST_GAPS = 2.0 / 3.0
# Of rows on business days so few may be at a weekend: a correction, or a day that was worked.
MOST_AT_WEEKENDS = 0.02
# Weekends without a row: one may be a gap like any other.
FEWEST_WEEKENDS = 2
MONTHS = {"month": 1, "quarter": 3, "year": 12}
BUSINESS_DAY = "business-day"
HALF_MONTH = "half-month"
WORDS = (*MONTHS, BUSINESS_DAY, HALF_MONTH)
# The two days of a month that are half a month apart lie at least so far from each other.
FEWEST_BETWEEN = 10
# Given as the step: each row is one, however long after the one before it comes.
BY_ROWS = "rows"


@dataclass(frozen=True)
class Even:
    """Steps of one length, as a number of stamps; a row lies on the nearest point.

    Points `of_days` are whole days apart, as near to even as they can be.
    """

    length: float | int
    of_days: bool = False

    def places(self, stamps: np.ndarray, origin: float | int) -> np.ndarray:
        """The grid point of each stamp, counted from that of `origin`."""
        elapsed = stamps - origin
        if elapsed.dtype.kind == "i":
            return (elapsed + self.length // 2) // self.length
        return np.floor(elapsed / self.length + 0.5)

    def stamps(self, origin: float | int, places: np.ndarray) -> np.ndarray:
        """The stamp of each grid point, counted from `origin`."""
        elapsed = places * self.length
        return origin + ((elapsed + DAY // 2) // DAY * DAY if self.of_days else elapsed)


@dataclass(frozen=True)
class Months:
    """Steps of `num_months` months; a row lies on the point of the month, quarter or year it is in.

    `day` is the day of the month of each point, 31 for the last one. A sequence that begins at
    another keeps its own; or, with one of the `RULES`, lies where that says.
    """

    num_months: int = 1
    day: int = 1
    rule: str = ""

    @property
    def word(self) -> str:
        """The word by which users call such steps."""
        words = {number: word for word, number in MONTHS.items()}
        return words.get(self.num_months, f"{self.num_months}-month")

    @property
    def length(self) -> int:
        """How long a step is on average, in microseconds."""
        return round(self.num_months * 365.2425 * DAY / 12)

    def places(self, stamps: np.ndarray, origin: float | int) -> np.ndarray:
        """The grid point of each stamp, counted from that of `origin`."""
        begun, first = _month(stamps), _month(np.array([origin]))
        return begun // self.num_months - first // self.num_months

    def stamps(self, origin: float | int, places: np.ndarray) -> np.ndarray:
        """The stamp of each grid point, counted from `origin`."""
        first = np.array([origin])
        month, day = _month(first), _day_of_month(first)
        is_usual = self.rule or day == np.minimum(self.day, _month_length(month))
        day = np.where(is_usual, self.day, day)
        months = month + self.num_months * np.asarray(places, np.int64)
        days = RULES[self.rule](months, day)
        return days * DAY + first % DAY

    def as_json(self) -> dict[str, Any]:
        """The steps as plain JSON, for the record of a run."""
        return {"step": self.word, "day": self.day} | ({"rule": self.rule} if self.rule else {})


@dataclass(frozen=True)
class BusinessDays:
    """Steps from one weekday to the next; what comes at a weekend lies on its Friday."""

    word = BUSINESS_DAY
    length = 7 * DAY // 5

    def places(self, stamps: np.ndarray, origin: float | int) -> np.ndarray:
        """The grid point of each stamp, counted from that of `origin`."""
        return np.busday_count(_weekday_before(np.array([origin])), _weekday_before(stamps))

    def stamps(self, origin: float | int, places: np.ndarray) -> np.ndarray:
        """The stamp of each grid point, counted from `origin`."""
        days = np.busday_offset(_weekday_before(np.array([origin])), np.asarray(places, np.int64))
        return days.astype(np.int64) * DAY + origin % DAY

    def as_json(self) -> dict[str, Any]:
        """The steps as plain JSON, for the record of a run."""
        return {"step": self.word}


@dataclass(frozen=True)
class HalfMonths:
    """Two steps a month, on the same two days of each: the 1st and the 15th, the 15th and the last.

    A row lies on the point that it comes after, or is on. A day of 31 is the last of the month.
    """

    first: int = 1
    second: int = 15

    word = HALF_MONTH
    length = round(365.2425 * DAY / 24)

    def places(self, stamps: np.ndarray, origin: float | int) -> np.ndarray:
        """The grid point of each stamp, counted from that of `origin`."""
        return self._numbers(np.asarray(stamps)) - self._numbers(np.array([origin]))

    def stamps(self, origin: float | int, places: np.ndarray) -> np.ndarray:
        """The stamp of each grid point, counted from `origin`."""
        numbers = self._numbers(np.array([origin])) + np.asarray(places, np.int64)
        day = np.where(numbers % 2 == 0, self.first, self.second)
        return _on_day(numbers // 2, day) * DAY + origin % DAY

    def _numbers(self, stamps: np.ndarray) -> np.ndarray:
        """Which point a stamp lies on, counted from the first of January of 1970."""
        months, days = _month(stamps), stamps // DAY
        after = [(days >= _on_day(months, day)).astype(np.int64) for day in self._days]
        return 2 * months - 1 + after[0] + after[1]

    @property
    def _days(self) -> tuple[int, int]:
        return self.first, self.second

    def as_json(self) -> dict[str, Any]:
        """The steps as plain JSON, for the record of a run."""
        return {"step": self.word, "days": list(self._days)}


Calendar = Months | BusinessDays | HalfMonths
Spacing = Even | Calendar


def calendar_from_json(known: dict[str, Any] | None) -> Calendar | None:
    """What `as_json` made, as steps again; records of before there were any have None."""
    if known is None:
        return None
    if known["step"] == HALF_MONTH:
        return HalfMonths(*known["days"])
    found = named_calendar(known["step"])
    if not isinstance(found, Months):
        return found
    return Months(found.num_months, known["day"], known.get("rule", ""))


def named_calendar(word: str, runs: list[np.ndarray] | None = None) -> Calendar | None:
    """The steps of a word: month, quarter, business-day, half-month, 6-month; None if it is none.

    On which day of the month the points of months lie, the stamps of `runs` say.
    """
    if word == BUSINESS_DAY:
        return BusinessDays()
    if word == HALF_MONTH:
        return _usual_half_months(runs or []) or HalfMonths()
    number = re.fullmatch(r"([1-9]\d*)-month", word)
    num_months = int(number[1]) if number else MONTHS.get(word)
    if num_months is None:
        return None
    stamps = np.concatenate(runs) if runs else np.zeros(1, np.int64)
    return Months(num_months, _usual_day(stamps))


def usual_calendar(runs: list[np.ndarray]) -> Calendar | None:
    """The steps of the calendar on which all stamps of dates lie; None if there are no such.

    Months, or several of them: every row on one day of its month, on the last, or on its first or
    last business day, and no two rows in one; or, on whatever days, one row in every month, quarter
    or year. Half months: every row on one of two days of its month. Business days: at most a row a
    day, hardly any at a weekend, and most on the weekday after the one before.
    """
    runs = [np.unique(run) for run in runs]
    if sum(max(len(run) - 1, 0) for run in runs) < FEWEST_DISTANCES:
        return None
    return _usual_months(runs) or _usual_half_months(runs) or _usual_business_days(runs)


def _usual_months(runs: list[np.ndarray]) -> Months | None:
    stamps = np.concatenate(runs)
    days, months, usual = stamps // DAY, _month(stamps), _usual_day(stamps)
    # The share of rows that each rule puts on their day; the plainest first.
    shares = {rule: np.mean(RULES[rule](months, usual) == days) for rule in RULES}
    jumps = np.concatenate([np.diff(_month(run)) for run in runs])
    best = max(shares, key=lambda rule: shares[rule])
    if shares[best] == 1:
        num_months = int(np.gcd.reduce(jumps))
        is_one_each = bool(np.all(jumps > 0)) and np.mean(jumps > num_months) <= MOST_GAPS
        return Months(num_months, usual, best) if is_one_each else None
    elapsed = np.concatenate([np.diff(run // DAY) for run in runs])
    if len(elapsed) < FEWEST_ANYWHERE or np.all(elapsed == elapsed[0]):
        return None
    for num_months in MONTHS.values():
        begun = np.concatenate([np.diff(_month(run) // num_months) for run in runs])
        if np.all(begun == 1):
            return Months(num_months, usual, best or USUAL_DAY)
    return None


def _usual_half_months(runs: list[np.ndarray]) -> HalfMonths | None:
    """The two days of a month that all rows are on, if both occur and most of them have a row."""
    stamps = np.concatenate(runs) if runs else np.zeros(0, np.int64)
    days, months = _day_of_month(stamps), _month(stamps)
    is_last = days == _month_length(months)
    # The last days of months are one day, unless all of them are the same.
    candidates = [np.unique(days), np.append(np.unique(days[~is_last]), 31)]
    for found in candidates:
        if len(found) != 2:
            continue
        first, second = map(int, found)
        if not FEWEST_BETWEEN <= second - first <= 30 - FEWEST_BETWEEN + 1:
            continue
        steps = HalfMonths(first, second)
        jumps = np.concatenate([np.diff(steps.places(run, run[0].item())) for run in runs])
        if np.all(jumps > 0) and np.mean(jumps > 1) <= MOST_GAPS:
            return steps
    return None


def _usual_business_days(runs: list[np.ndarray]) -> BusinessDays | None:
    days = [run // DAY for run in runs]
    weekend = at_weekends(np.concatenate(runs))
    if np.mean(weekend) >= MOST_AT_WEEKENDS:
        return None
    elapsed = np.concatenate([np.diff(day) for day in days])
    jumps = np.concatenate([np.diff(_business_days(run)) for run in runs])
    num_weekends = int(np.sum(elapsed > jumps))
    # None may share a day but those of a weekend with their Friday, where they lie; not so many
    # that the grid would lose what it should hold.
    shared = int(np.sum(jumps == 0))
    is_daily = bool(np.all(elapsed > 0)) and shared <= min(np.sum(weekend), len(weekend) / 100 + 1)
    is_daily = is_daily and np.median(jumps) == 1
    return BusinessDays() if is_daily and num_weekends >= FEWEST_WEEKENDS else None


def at_weekends(stamps: np.ndarray) -> np.ndarray:
    """Which of the stamps are at a weekend."""
    return (stamps // DAY + 3) % 7 > 4  # 1970 began with a Thursday


def _business_days(stamps: np.ndarray) -> np.ndarray:
    return np.busday_count(np.datetime64("1970-01-01", "D"), _weekday_before(stamps))


def _usual_day(stamps: np.ndarray) -> int:
    """The day of the month on which most stamps lie; 31 if all are at the end of theirs."""
    days, lengths = _day_of_month(stamps), _month_length(_month(stamps))
    if np.all(days == lengths):
        return 31
    last = int(days.max())  # the 30th, of which February has none
    if np.all(days == np.minimum(last, lengths)):
        return last
    return int(np.argmax(np.bincount(days)))


def _month(stamps: np.ndarray) -> np.ndarray:
    """The number of months since 1970 began."""
    return stamps.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _first_day(months: np.ndarray) -> np.ndarray:
    """The first day of each month, as a number of days since 1970 began."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _month_length(months: np.ndarray) -> np.ndarray:
    return _first_day(months + 1) - _first_day(months)


def _day_of_month(stamps: np.ndarray) -> np.ndarray:
    return stamps // DAY - _first_day(_month(stamps)) + 1


def _on_day(months: np.ndarray, day: Any) -> np.ndarray:
    """The day of each month, or its last if it has none, as a number of days since 1970 began."""
    return _first_day(months) + np.minimum(day, _month_length(months)) - 1


def _last_business_day(months: np.ndarray, day: Any) -> np.ndarray:
    del day
    last = (_first_day(months + 1) - 1).astype("datetime64[D]")
    return np.busday_offset(last, 0, roll="backward").astype(np.int64)


def _first_business_day(months: np.ndarray, day: Any) -> np.ndarray:
    del day
    first = _first_day(months).astype("datetime64[D]")
    return np.busday_offset(first, 0, roll="forward").astype(np.int64)


# On which days points of months lie: on one of the month, or on that of the sequence where it has
# one of its own; on one that is the same for all; on the last or the first business day.
USUAL_DAY = "usual-day"
RULES: dict[str, Callable[[np.ndarray, Any], np.ndarray]] = {
    "": _on_day,
    USUAL_DAY: _on_day,
    "last-business-day": _last_business_day,
    "first-business-day": _first_business_day,
}


def _weekday_before(stamps: np.ndarray) -> np.ndarray:
    days = stamps.astype("datetime64[us]").astype("datetime64[D]")
    return np.busday_offset(days, 0, roll="backward")
