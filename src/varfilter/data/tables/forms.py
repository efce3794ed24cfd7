"""How the times of a table are written, so that others can be written so: a form for `str.format`.

A style says in which order day, month and year stand (`dates.py`); a form has all the rest: what
stands between them, how many digits they have, and the time of the day.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from varfilter.data.tables.dates import BY_NAME, DAY_MONTH_YEAR, MONTH_DAY_YEAR
from varfilter.data.tables.periods import MONTHS, NAMED, month_number
from varfilter.data.tables.zones import offset_text, on_wall

# So many texts, from all over a table, must be as the form has them.
MOST_COMPARED = 500
CLOCK = ("hour", "minute", "second", "fraction")
# Names of days as a form has them: those of Monday stand for all.
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAYS = {
    form("mon" if short else "monday"): form
    for short in (False, True)
    for form in (str.lower, str.upper, str.capitalize)
}


def form_of(texts: Sequence[str], stamps: np.ndarray, style: str, zone: str) -> str:
    """The form in which texts have times, of which `stamps` are in UTC; empty if there is none."""
    which = np.unique(np.linspace(0, len(texts) - 1, MOST_COMPARED).astype(int))
    texts, stamps = [texts[i] for i in which], stamps[which]
    for is_padded, is_hour_padded in itertools.product((True, False), repeat=2):
        for text in (texts[0], texts[-1]):  # May has the same name in short
            form = _form(text, style, is_padded=is_padded, is_hour_padded=is_hour_padded)
            if form and all(
                in_form(stamp, form, zone) == text
                for stamp, text in zip(stamps, texts, strict=True)
            ):
                return form
    return ""


def in_form(stamp: int | np.integer, form: str, zone: str) -> str | None:
    """A stamp as the form has it; None if that would leave out some of its time of the day."""
    wall = on_wall(np.array([stamp], np.int64), zone)[0].astype("datetime64[us]").item()
    has_hour = "{hour" in form or "{twelfth" in form
    lost = (
        (wall.hour and not has_hour)
        or (wall.minute and "{minute" not in form)
        or (wall.second and "{second" not in form)
        or (wall.microsecond and "{fraction" not in form)
    )
    if lost:
        return None
    fields = {
        "year": wall.year, "yy": wall.year % 100, "month": wall.month, "day": wall.day,
        "hour": wall.hour, "twelfth": (wall.hour - 1) % 12 + 1, "minute": wall.minute,
        "second": wall.second, "fraction": f"{wall.microsecond:06}",
        "am": "am" if wall.hour < 12 else "pm", "AM": "AM" if wall.hour < 12 else "PM",
    }  # fmt: skip
    fields |= _names(MONTHS[wall.month], NAMED) | _names(DAYS[wall.weekday()], WEEKDAYS)
    if "{offset" in form:
        fields["offset"] = offset_text(stamp, zone)
        fields["offset_digits"] = offset_text(stamp, zone).replace(":", "")
    return form.format(**fields)


def _names(name: str, named: Mapping[str, Callable[[str], str]]) -> dict[str, str]:
    return {key: form(name[:3] if len(key) == 3 else name) for key, form in named.items()}


def _form(text: str, style: str, *, is_padded: bool, is_hour_padded: bool) -> str:
    """The form of one text; empty if a number in it is nothing that a form knows."""
    begin, offset = text, ""
    if found := re.fullmatch(r"(.*:.*\d)( ?)([+-]\d{2}:?\d{2})", text):
        begin = found[1]
        offset = found[2] + ("{offset}" if ":" in found[3] else "{offset_digits}")
    order = {
        DAY_MONTH_YEAR: ("day", "month", "year"),
        MONTH_DAY_YEAR: ("month", "day", "year"),
        BY_NAME: ("day", "year"),
    }.get(style, ("year", "month", "day"))
    if re.match(r"\d{1,2}:", begin):
        order = (*CLOCK[: 1 + begin.count(":")], *order)
    else:
        order = (*order, *CLOCK)
    is_twelve = re.search(r"\d ?[AaPp][Mm]\b", begin) is not None
    widths = {"month": is_padded, "day": is_padded, "hour": is_hour_padded}
    form, numbers = "", iter(order)
    for token in re.findall(r"\d+|[A-Za-z]+|[^\dA-Za-z]+", begin):
        if not token.isdecimal():
            form += _word(token)
            continue
        field = next(numbers, None)
        if field is None:
            return ""
        if field == "year":
            field = "year:04" if len(token) == 4 else "yy:02"
        elif field == "fraction":
            field = f"fraction:.{len(token)}"
        else:
            shown = "twelfth" if field == "hour" and is_twelve else field
            field = f"{shown}:02" if widths.get(field, True) else shown
        form += f"{{{field}}}"
    return form + offset


def _word(token: str) -> str:
    """What stands for a word in a form: names of months and days, and halves of the day."""
    if token.lower() in ("am", "pm"):
        return "{AM}" if token.isupper() else "{am}"
    is_day = any(token.lower() in (day, day[:3]) for day in DAYS)
    is_month = month_number(token) is not None
    for own, is_one in ((("jan", "january"), is_month), (("mon", "monday"), is_day)):
        if is_one and token.isalpha():
            own = own[len(token) > 3]
            alike = (f for f in (str.lower, str.upper, str.capitalize) if f(token) == token)
            return f"{{{next(alike, str.lower)(own)}}}"
    return token.replace("{", "{{").replace("}", "}}")
