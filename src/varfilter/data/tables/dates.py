"""Dates as people write them, in other ways than ISO's: 31/01/2024, 31-Jan-24, 20240131, 202401.

How they are written is a style: the order of day, month and year in words, or the form of a month,
a quarter or a week (`periods.py`). A table of new rows is read in the style of the first one:
a few rows alone may not tell the day from the month.
"""

import datetime as dt
import re
from collections.abc import Sequence

import numpy as np

from varfilter.data.tables.periods import (
    in_period,
    is_period,
    month_number,
    period_dates,
    period_in_words,
    period_style,
)

CLOCK = (
    r"(?:(?:[T,]|\s)\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?"
    r"(?:\s*([AaPp])\.?[Mm]\.?)?)?"
)
YEAR_LAST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})" + CLOCK)
YEAR_FIRST = re.compile(r"(\d{4})([./-])(\d{1,2})\2(\d{1,2})" + CLOCK)
# 31-Jan-2024 and Jan 31, 2024, after the day of the week or not.
DAY_AND_NAME = re.compile(
    r"(?:[A-Za-z]{3,9},? )?(\d{1,2})[ /.-]([A-Za-z]{3,9})\.?,?[ /-](\d{2,4})(.*)"
)
NAME_AND_DAY = re.compile(r"(?:[A-Za-z]{3,9},? )?([A-Za-z]{3,9})\.? (\d{1,2}),? (\d{4})(.*)")
# The time of the day before the date: 12:00 AM 01 Jan 2024.
CLOCK_FIRST = re.compile(r"(\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s*[AaPp]\.?[Mm]\.?)?),? +(.+)")
# Of the years that eight digits may begin with: others are numbers.
CENTURIES = ("18", "19", "20", "21")
YEAR_MONTH_DAY, DAY_MONTH_YEAR, MONTH_DAY_YEAR, BY_NAME, DIGITS, SIX_DIGITS = (
    "year, month, day", "day, month, year", "month, day, year", "day, month by its name, year",
    "year, month, day in eight digits", "year, month in six digits",
)  # fmt: skip
# What the user calls the two orders that days up to 12 do not tell apart.
ORDERS = {"day-first": DAY_MONTH_YEAR, "month-first": MONTH_DAY_YEAR}


def written_dates(texts: Sequence[str]) -> tuple[list[dt.datetime], str] | None:
    """The dates of texts and their style; None if they are none, or it is not certain."""
    if not texts:
        return None
    texts = [_clock_last(text) for text in texts]
    if all(YEAR_FIRST.fullmatch(text) for text in texts):
        style = YEAR_MONTH_DAY
    elif (period := period_style(texts)) is not None:
        style = period
    elif _numbered(texts[0]) != texts[0]:
        style = BY_NAME
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
    if is_period(style):
        return period_dates(style, texts)
    texts = [_clock_last(text) for text in texts]
    if style in (DIGITS, SIX_DIGITS):
        length = 8 if style == DIGITS else 6
        texts = [_in_digits(text) if len(text) == length else "" for text in texts]
        style = YEAR_MONTH_DAY
    if style == BY_NAME:
        texts, style = [_numbered(text) for text in texts], DAY_MONTH_YEAR
    pattern = YEAR_FIRST if style == YEAR_MONTH_DAY else YEAR_LAST
    matches = [pattern.fullmatch(text) for text in texts]
    if not all(matches):
        return None
    try:
        return [_date(match, style) for match in matches if match]
    except ValueError:
        return None


def are_numbered(texts: Sequence[str]) -> bool:
    """Whether all texts look like a day, a month and a year in numbers, the year last."""
    return bool(texts) and all(YEAR_LAST.fullmatch(_clock_last(text)) for text in texts)


def digits_of(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers as texts, others and what is missing as None."""
    is_whole = np.isfinite(numbers) & (numbers == np.round(numbers)) & (np.abs(numbers) < 1e15)
    texts = np.full(len(numbers), None, object)
    texts[is_whole] = [str(number) for number in numbers[is_whole].astype(np.int64)]
    return texts


def dates_of_digits(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, str] | None:
    """The dates that numbers such as 20240131 or 202401 are, their texts and their style.

    None if one of the numbers is no date.
    """
    texts = digits_of(numbers)
    present = [text for text in texts if text is not None]
    if len(present) < len(texts) or not all(text[:2] in CENTURIES for text in present):
        return None
    style = SIX_DIGITS if len(present[0]) == 6 else DIGITS
    dates = dates_in(style, present)
    return None if dates is None else (np.array(dates, "datetime64[us]"), texts, style)


def in_style(time: np.datetime64, style: str) -> str | None:
    """A time as a month, a quarter or a week, or in the digits of the style.

    None if the time is not the beginning of one, or not a day of such digits.
    """
    if style in (DIGITS, SIX_DIGITS):
        day = time.astype("datetime64[D]" if style == DIGITS else "datetime64[M]")
        return str(day).replace("-", "") if day == time else None
    return in_period(time, style) if is_period(style) else None


def described(style: str) -> str:
    """A style in words."""
    return period_in_words(style) if is_period(style) else style


def uncertain(texts: Sequence[str]) -> str | None:
    """Why texts that look like dates, in numbers, cannot be read as such; None if they do not."""
    found = [_clock_last(text) for text in texts]
    matches = [match for text in found if (match := YEAR_LAST.fullmatch(text))]
    if not matches or len(matches) < len(found):
        return None
    firsts, seconds = [int(match[1]) for match in matches], [int(match[3]) for match in matches]
    if max(*firsts, *seconds) <= 12:
        return (
            "dates of which day and month cannot be told apart, as none is above 12, such as"
            f" {texts[0]!r}; give `date_order` ({' or '.join(ORDERS)}), or write 2024-01-31 or"
            " 31-Jan-2024"
        )
    bad = int(np.argmax(firsts)), int(np.argmax(seconds))
    return (
        f"dates of which no order fits all, such as {texts[bad[0]]!r} and {texts[bad[1]]!r}; write"
        " 2024-01-31 or 31-Jan-2024"
    )


def _clock_last(text: str) -> str:
    """A date with the time of its day after it."""
    found = CLOCK_FIRST.fullmatch(text)
    return f"{found[2]} {found[1]}" if found else text


def _numbered(text: str) -> str:
    """A date with the name of a month as one in numbers, the day first; others as they are."""
    found = DAY_AND_NAME.fullmatch(text)
    day, name, year, rest = found.groups() if found else ("", "", "", "")
    if not found and (found := NAME_AND_DAY.fullmatch(text)):
        name, day, year, rest = found.groups()
    number = month_number(name)
    return text if number is None else f"{day}/{number}/{year}{rest}"


def _in_digits(text: str) -> str:
    return f"{text[:4]}/{text[4:6]}/{text[6:] or '01'}"


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
