"""Numbers and dates as people write them: decimal commas, and days and months in their orders."""

import datetime as dt
import re

COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")
# 1,234 may be a thousand; 0,125 and 12,5 may not.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
CLOCK = (
    r"(?:(?:[T,]|\s)\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?"
    r"(?:\s*([AaPp])\.?[Mm]\.?)?)?"
)
YEAR_LAST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})" + CLOCK)
YEAR_FIRST = re.compile(r"(\d{4})([./])(\d{1,2})\2(\d{1,2})" + CLOCK)


def comma_numbers(texts: list[str]) -> list[float] | None:
    """If all are numbers, some with a decimal comma, and it cannot be one of thousands."""
    if not all(COMMA_NUMBER.fullmatch(text) for text in texts):
        return None
    with_comma = [text for text in texts if "," in text]
    if not with_comma or all(THOUSANDS.fullmatch(text) for text in with_comma):
        return None
    # 1.5 beside 1,5: one of the two is not what it seems.
    if any("." in text and "," not in text for text in texts):
        return None
    return [float(text.replace(".", "").replace(",", ".")) for text in texts]


def has_comma_number(text: str) -> bool:
    """Whether a number with one comma stands there."""
    return "," in text and COMMA_NUMBER.fullmatch(text) is not None


def written_dates(texts: list[str]) -> tuple[list[dt.datetime], str] | None:
    """If all are dates in one order that is certain: they, and the order in words."""
    found = [YEAR_FIRST.fullmatch(text) for text in texts]
    order = "year, month, day"
    if not all(found):
        found = [YEAR_LAST.fullmatch(text) for text in texts]
        firsts = [int(match[1]) for match in found if match]
        seconds = [int(match[3]) for match in found if match]
        if not texts or len(firsts) < len(texts):
            return None
        dotted = all(match[2] == "." for match in found if match)
        # Between dots the day stands first; between strokes only a day above 12 can tell.
        if max(firsts) > 12 or (dotted and max(seconds) <= 12):
            order = "day, month, year"
        elif max(seconds) > 12:
            order = "month, day, year"
        else:
            return None
    try:
        return [_date(match, order) for match in found if match], order
    except ValueError:
        return None


def looks_like_date(text: str) -> bool:
    """Whether three numbers stand there as in a date, in whatever order."""
    return (YEAR_LAST.fullmatch(text) or YEAR_FIRST.fullmatch(text)) is not None


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
