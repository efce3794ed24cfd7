"""Months, quarters and weeks as people write them: 2024Q1, 2024M01, 01/2024, Jan 2024, 2024-W01.

How they are written is a style: what `str.format` makes of it is the text of one of them.
"""

import calendar
import datetime as dt
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

MONTHS = tuple(name.lower() for name in calendar.month_name)
# Names of months as a style has them: those of January stand for all.
NAMED = {
    name: form
    for short in (False, True)
    for form in (str.lower, str.upper, str.capitalize)
    for name in [form("jan" if short else "january")]
}
WRITTEN = tuple(
    re.compile(form)
    for form in (
        r"(?P<year>\d{4})[ -]?[Qq](?P<quarter>[1-4])",
        r"[Qq](?P<quarter>[1-4])[ /-]?(?P<year>\d{4})",
        r"(?P<year>\d{4})[ -]?[Mm](?P<month>\d{1,2})",
        r"(?P<month>\d{1,2})[/-](?P<year>\d{4})",
        r"(?P<year>\d{4})/(?P<month>\d{1,2})",
        r"(?P<name>[A-Za-z]{3,9})\.?(?:[ /-]|,? ?'?)(?P<year>\d{4})",
        r"(?P<name>[A-Za-z]{3,9})\.?(?:[ /-]| ?')(?P<yy>\d{2})",
        r"(?P<year>\d{4})[ -]?(?P<name>[A-Za-z]{3,9})",
        r"(?P<year>\d{4})-?[Ww](?P<week>\d{2})",
    )
)


def is_period(style: str) -> bool:
    """Whether a style is one of months, quarters or weeks."""
    return "{" in style


def period_style(texts: Sequence[str]) -> str | None:
    """How months, quarters or weeks are written; None if they are none, or it is not certain."""
    if not texts or _match(texts[0]) is None:
        return None
    found = [match for text in texts if (match := _match(text)) is not None]
    if len(found) < len(texts) or not _are_certain(found):
        return None
    # A month of two digits may need no zero before it.
    first = min(found, key=_uncertainty)
    is_padded = all(len(match.groupdict().get("month", "00")) == 2 for match in found)
    style = first.string
    for group, text in sorted(first.groupdict().items(), key=lambda each: -first.start(each[0])):
        field = f"{{{_field(group, text, is_padded=is_padded)}}}"
        style = style[: first.start(group)] + field + style[first.end(group) :]
    return style


def period_dates(style: str, texts: Sequence[str]) -> list[dt.datetime] | None:
    """The first days of months, quarters or weeks; None if one is none of the style's."""
    matches = [match for text in texts if (match := _match(text)) is not None]
    has_short_years = "{yy" in style
    if len(matches) < len(texts) or any(
        "yy" in match.groupdict() and not has_short_years for match in matches
    ):
        return None
    try:
        return [_first_day(match) for match in matches]
    except ValueError:
        return None


def in_period(time: np.datetime64, style: str) -> str | None:
    """A time as the month, quarter or week of the style that begins then; None if none does."""
    if "{week" in style:
        day = time.astype("datetime64[D]").item()
        if time != np.datetime64(day) or day.weekday():
            return None
        year, week, _ = day.isocalendar()
        return style.format(year=year, week=week)
    month = time.astype("datetime64[M]")
    number = int(month.astype(np.int64))
    if month != time or ("{quarter}" in style and number % 3):
        return None
    year, month = 1970 + number // 12, number % 12
    names = {name: form(MONTHS[month + 1]) for name, form in NAMED.items()}
    names |= {name: text[:3] for name, text in names.items() if len(name) == 3}
    return style.format(year=year, yy=year % 100, month=month + 1, quarter=month // 3 + 1, **names)


def period_in_words(style: str) -> str:
    """A style of months, quarters or weeks in words."""
    what = "weeks" if "{week" in style else "quarters" if "{quarter}" in style else "months"
    return f"{what}, as {in_period(np.datetime64('2024-01-01'), style)}"


def month_number(name: str) -> int | None:
    """The number of a month by its name, in full or short."""
    name = name.lower()
    return next((i for i, full in enumerate(MONTHS) if i and _is_name(name, full)), None)


def _uncertainty(match: re.Match[str]) -> int:
    """How little a match says of whether names are short: May is either, and Sept is rare."""
    name = (match.groupdict().get("name") or "").lower()
    return 0 if name in MONTHS[1:] and name != "may" else 1 if len(name) == 3 else 2


def _field(group: str, text: str, *, is_padded: bool) -> str:
    """What `str.format` makes of a period where such a text stood."""
    if group == "name":
        own = "january" if text[3:] else "jan"
        alike = (name for name, form in NAMED.items() if form(own) == name and form(text) == text)
        return next(alike, own)
    is_padded = group in ("week", "yy") or (group == "month" and is_padded)
    return f"{group}:02" if is_padded else group


def _is_name(text: str, month: str) -> bool:
    return len(text) >= 3 and text in (month, month[:3], month[:4] if month[0] == "s" else "")


def _match(text: str) -> re.Match[str] | None:
    match = next((found for each in WRITTEN if (found := each.fullmatch(text))), None)
    if match is None or ("name" in match.groupdict() and month_number(match["name"]) is None):
        return None
    return match


def _are_certain(found: Sequence[re.Match[str]]) -> bool:
    """Whether two digits after the name of a month are those of a year: Jan-24 may be a day.

    They are if one of them is none of a month, or if most rows are in another month than the last.
    """
    if "yy" not in found[0].groupdict():
        return True
    if any("yy" not in match.groupdict() for match in found):
        return False
    if any(not 1 <= int(match["yy"]) <= 31 for match in found):
        return True
    changes = [one["name"] != other["name"] for one, other in pairwise(found)]
    return 2 * sum(changes) > len(changes)


def _first_day(match: re.Match[str]) -> dt.datetime:
    groups = match.groupdict()
    year = int(groups.get("year") or 0)
    if "yy" in groups:
        year = int(match["yy"]) + (2000 if int(match["yy"]) < 69 else 1900)
    if "week" in groups:
        return dt.datetime.fromisocalendar(year, int(match["week"]), 1)
    if "quarter" in groups:
        return dt.datetime(year, 3 * int(match["quarter"]) - 2, 1)
    named = month_number(groups["name"]) if "name" in groups else None
    return dt.datetime(year, named or int(groups.get("month", 0)), 1)
