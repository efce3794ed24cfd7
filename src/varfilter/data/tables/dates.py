"""Dates as people write them, in other ways than ISO's: 31/01/2024, 1/31/24, 2024Q1, Q1 2024.

How they are written is a style: the order of day, month and year in words, or the form of a quarter
with places for its year and its number. A table of new rows is read in the style of the first one:
a few rows alone may not tell the day from the month.
"""

import datetime as dt
import re
from collections.abc import Sequence

import numpy as np

CLOCK = (
    r"(?:(?:[T,]|\s)\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?"
    r"(?:\s*([AaPp])\.?[Mm]\.?)?)?"
)
YEAR_LAST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})" + CLOCK)
YEAR_FIRST = re.compile(r"(\d{4})([./])(\d{1,2})\2(\d{1,2})" + CLOCK)

QUARTERS = (
    re.compile(r"(?P<year>\d{4})(?P<between>[ -]?)(?P<letter>[Qq])(?P<quarter>[1-4])"),
    re.compile(r"(?P<letter>[Qq])(?P<quarter>[1-4])(?P<between>[ /-]?)(?P<year>\d{4})"),
)
YEAR_MONTH_DAY, DAY_MONTH_YEAR, MONTH_DAY_YEAR = (
    "year, month, day", "day, month, year", "month, day, year",
)  # fmt: skip


def written_dates(texts: Sequence[str]) -> tuple[list[dt.datetime], str] | None:
    """The dates of texts and their style; None if they are none, or it is not certain."""
    if not texts:
        return None
    if all(YEAR_FIRST.fullmatch(text) for text in texts):
        style = YEAR_MONTH_DAY
    elif found := _quarter(texts[0]):
        style = _quarter_style(found)
    else:
        matches = [YEAR_LAST.fullmatch(text) for text in texts]
        firsts = [int(match[1]) for match in matches if match]
        seconds = [int(match[3]) for match in matches if match]
        if len(firsts) < len(texts):
            return None
        dotted = all(match[2] == "." for match in matches if match)
        # Between dots the day stands first; between strokes only a day above 12 can tell.
        if max(firsts) > 12 or (dotted and max(seconds) <= 12):
            style = DAY_MONTH_YEAR
        elif max(seconds) > 12:
            style = MONTH_DAY_YEAR
        else:
            return None
    dates = dates_in(style, texts)
    return None if dates is None else (dates, style)


def dates_in(style: str, texts: Sequence[str]) -> list[dt.datetime] | None:
    """The dates of texts that are written in a style; None if one of them is not."""
    is_quarter = "{" in style
    pattern = YEAR_FIRST if style == YEAR_MONTH_DAY else YEAR_LAST
    matches = [_quarter(text) if is_quarter else pattern.fullmatch(text) for text in texts]
    if not all(matches):
        return None
    try:
        return [
            dt.datetime(int(match["year"]), 3 * int(match["quarter"]) - 2, 1)
            if is_quarter
            else _date(match, style)
            for match in matches
            if match
        ]
    except ValueError:
        return None


def in_style(time: np.datetime64, style: str) -> str | None:
    """A time as a quarter of the style; None if the style has none, or it is no quarter's begin."""
    month = time.astype("datetime64[M]")
    number = int(month.astype(np.int64))
    if "{" not in style or month != time or number % 3:
        return None
    return style.format(year=1970 + number // 12, quarter=number % 12 // 3 + 1)


def described(style: str) -> str:
    """A style in words."""
    return f"quarters, as {style.format(year=2024, quarter=1)}" if "{" in style else style


def looks_like_date(text: str) -> bool:
    """Whether three numbers stand there as in a date, in whatever order."""
    return (YEAR_LAST.fullmatch(text) or YEAR_FIRST.fullmatch(text)) is not None


def _quarter(text: str) -> re.Match[str] | None:
    return next((found for each in QUARTERS if (found := each.fullmatch(text))), None)


def _quarter_style(found: re.Match[str]) -> str:
    """How a quarter is written, with places for the year and the number."""
    letter, between = found["letter"], found["between"]
    if found.start("year") == 0:
        return f"{{year}}{between}{letter}{{quarter}}"
    return f"{letter}{{quarter}}{between}{{year}}"


def _date(match: re.Match[str], order: str) -> dt.datetime:
    first, second, third = int(match[1]), int(match[3]), int(match[4])
    if order.startswith("year"):
        year, month, day = first, second, third
    elif order.startswith("day"):
        year, month, day = third, second, first
    else:
        year, month, day = third, first, second
    if len(match[4]) == 2 and not order.startswith("year"):
        year += 2000 if year < 69 else 1900
    hour = int(match[5] or 0)
    if match[9]:
        if not 1 <= hour <= 12:
            raise ValueError("no such hour")
        hour = hour % 12 + (12 if match[9] in "Pp" else 0)
    micro = int((match[8] or "0").ljust(6, "0"))
    return dt.datetime(year, month, day, hour, int(match[6] or 0), int(match[7] or 0), micro)
