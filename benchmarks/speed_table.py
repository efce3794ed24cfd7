"""What `speed.py` prints: a line for each figure, and the table of the aims."""

from collections.abc import Callable
from typing import Any, NamedTuple

Row = dict[str, Any]
Report = dict[str, Any]


class Aim(NamedTuple):
    """A line of the table: what it was before, what it must reach, and the aim."""

    title: str
    before: str
    must: str
    aim: str
    measured: Callable[[Report], str]


def markdown(reports: list[Report]) -> str:
    """The reports as the Markdown tables of `RESULTS.md`.

    Of a figure that several have, the last counts; ratios are of rows of one run alone.
    """
    rows = [row | {"run": i} for i, each in enumerate(reports) for row in each["rows"]]
    report = {"rows": rows}
    lines = []
    if any(each.get("quick") for each in reports):
        lines += ["Tiny sizes: these figures show that it runs, and are no results.", ""]
    lines += [
        "| ms per time step of a whole update, unless said | as filed | must reach | aim |"
        " measured |",
        "|---|---|---|---|---|",
    ]
    for aim in AIMS:
        cells = (aim.title, aim.before, aim.must, aim.aim, aim.measured(report))
        lines.append("| " + " | ".join(cells) + " |")
    for table in (_phases, _peers, _streams, _growth):
        if found := table(report):
            lines += ["", *found]
    return "\n".join(lines)


def said(row: Row) -> str:
    """One line for people."""
    place = " ".join(str(row[name]) for name in ("kind", "preset", "subject") if name in row)
    match row["kind"]:
        case "failure":
            return f"{row['item']} FAILED: {row['error']}"
        case "update":
            return (
                f"{place}: {_ms(row)} ms a step; {row['first_update_s']:.1f} s to the first update,"
                f" {row['compile_s']:.1f} s of them compiling; peak {row['peak_gib']:.2f} GiB"
                f" ({row['device']})"
            )
        case "phase":
            return f"{place} {row['phase']}: {_ms(row)} ms a step"
        case "torch":
            return (
                f"{place} {row['way']} {row['mode']}: {_ms(row)} ms a step; free energy"
                f" {row['apart']:.0e} apart ({row['device']})"
            )
        case "evaluation":
            return (
                f"{place}: {row['songs']} songs, {row['steps']} steps:"
                f" {_figure(row['seconds'])} s; the first time {row['first_s']:.1f} s"
            )
        case "push":
            return (
                f"{place}: p50 {row['p50_us']:.0f} us, p99 {row['p99_us']:.0f} us ({row['device']})"
            )
        case "streams":
            return (
                f"{place} {row['streams']}: {_figure(row['us'])} us, {row['per_second']:,.0f}"
                f" stream-steps a second ({row['device']})"
            )
        case "growth":
            memory = row["temporary_bytes"]
            size = "" if memory is None else f", {memory / 2**20:.1f} MiB of its own"
            return f"{place} {row['what']} {row['axis']}={row['size']}: {_ms(row)} ms a step{size}"
        case "exponent":
            return f"{place} {row['what']} {row['axis']}: time ~ {row['axis']}^{row['time']:.2f}"
    return f"{place}: {_ms(row)} ms a step"


def _update(preset: str) -> Callable[[Report], str]:
    def measured(report: Report) -> str:
        row = _found(report, kind="update", preset=preset)
        return "" if row is None else _ms(row)

    return measured


def _ratio(mode: str) -> Callable[[Report], str]:
    """How many times as long PyTorch's loop takes, for music and for TIMIT."""

    def measured(report: Report) -> str:
        cells = []
        for preset in ("music-one", "timit-one"):
            theirs = _found(report, kind="torch", preset=preset, way="loop", mode=mode)
            cells.append("" if theirs is None else _times_ours(report, theirs, "x"))
        return " / ".join(cells) if any(cells) else ""

    return measured


def _first_updates(report: Report) -> str:
    rows = [_found(report, kind="update", preset=name) for name in FIRST]
    cells = ["" if row is None else f"{row['first_update_s']:.0f}" for row in rows]
    return " / ".join(cells) + " s" if any(cells) else ""


def _evaluation(report: Report) -> str:
    row = _found(report, kind="evaluation", preset="music-recipe")
    return "" if row is None else _figure(row["seconds"]) + " s"


FIRST = ("music-one", "timit-one", "svg-one")
AIMS = (
    Aim("SRNN TIMIT, B=64, T=40, one phi step", "0.27", "0.12", "0.06", _update("timit-one")),
    Aim("same, recipe's 39 phi steps", "0.54", "0.25", "0.12", _update("timit-recipe")),
    Aim("SRNN music, B=16, T=25, one phi step, one draw", "0.134", "0.07", "0.04",
        _update("music-one")),
    Aim("same, recipe (24 phi steps, 64 draws)", "0.33", "0.16", "0.08", _update("music-recipe")),
    Aim("same, 8 seeds in one program, per seed", "0.108", "0.05", "0.03", _update("music-seeds")),
    Aim("VRNN TIMIT, recipe", "0.97", "0.50", "0.25", _update("vrnn-recipe")),
    Aim("SVG KTH, B=20, one phi step", "5.4", "2.5", "1.2", _update("svg-one")),
    Aim("SRNN TIMIT baseline, end to end", "0.56", "0.30", "0.15", _update("timit-baseline")),
    Aim("SRNN music baseline, end to end", "0.22", "-", "-", _update("music-baseline")),
    Aim("eager PyTorch over ours: music / TIMIT, one phi step", "57x / 29x", "100x / 65x",
        "190x / 130x", _ratio("eager")),
    Aim("PyTorch in one CUDA graph over ours: music / TIMIT", "5.8x / 4.0x", "10x / 9x",
        "20x / 18x", _ratio("graph")),
    Aim("first update after start: music / TIMIT / SVG", "24 / 38 / 100 s", "12 / 19 / 50 s",
        "6 / 9.5 / 25 s", _first_updates),
    Aim("12 songs scored whole, the longest over 2,000 steps", "1.6 s", "0.4 s", "-", _evaluation),
)  # fmt: skip


def _phases(report: Report) -> list[str]:
    parts: dict[str, dict[str, Row]] = {}
    for row in report["rows"]:
        if row["kind"] == "phase":
            parts.setdefault(row["preset"], {})[row["phase"]] = row
    if not parts:
        return []
    names = list(dict.fromkeys(name for phases in parts.values() for name in phases))
    lines = [
        "| ms per time step | whole | " + " | ".join(names) + " | compile, s | peak, GiB |",
        "|---" * (len(names) + 4) + "|",
    ]
    for preset, phases in parts.items():
        whole = _found(report, kind="update", preset=preset)
        cells = [_ms(phases[name]) if name in phases else "" for name in names]
        ends = ["", ""]
        if whole is not None:
            ends = [f"{whole['compile_s']:.0f}", f"{whole['peak_gib']:.2f}"]
        head = [preset, "" if whole is None else _ms(whole)]
        lines.append("| " + " | ".join([*head, *cells, *ends]) + " |")
    return lines


def _peers(report: Report) -> list[str]:
    rows = [row for row in report["rows"] if row["kind"] in ("torch", "tape")]
    if not rows:
        return []
    lines = [
        "| the same update by a peer | way | ms per time step | times ours | free energies apart |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        times = _times_ours(report, row)
        is_torch = row["kind"] == "torch"
        who = f"PyTorch {row['torch']}, {row['mode']}" if is_torch else "jax, one tape"
        way = row["way"] if is_torch else "loop"
        apart = f"{row['apart']:.0e}" if is_torch else ""
        lines.append(f"| {row['preset']}: {who} | {way} | {_ms(row)} | {times} | {apart} |")
    return lines


def _streams(report: Report) -> list[str]:
    rows = [row for row in report["rows"] if row["kind"] in ("push", "streams")]
    if not rows:
        return []
    lines = ["| streams | device | us | stream-steps a second |", "|---|---|---|---|"]
    for row in rows:
        if row["kind"] == "push":
            cells = [f"{row['subject']}, `Stream.push`", row["device"],
                     f"p50 {row['p50_us']:.0f}, p99 {row['p99_us']:.0f}", ""]  # fmt: skip
        else:
            cells = [f"{row['subject']}, {row['streams']} by vmap", row["device"],
                     _figure(row["us"]), f"{row['per_second']:,.0f}"]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _growth(report: Report) -> list[str]:
    rows = [row for row in report["rows"] if row["kind"] == "growth"]
    if not rows:
        return []
    lines = ["| SRNN music | size | ms per time step | MiB of its own |", "|---|---|---|---|"]
    for row in rows:
        memory = row["temporary_bytes"]
        size = "" if memory is None else f"{memory / 2**20:.1f}"
        lines.append(f"| {row['what']} | {row['axis']} = {row['size']} | {_ms(row)} | {size} |")
    return lines


def _times_ours(report: Report, row: Row, unit: str = "") -> str:
    """How many times as long as our update of the same run it takes; empty without one."""
    ours = _found(report, kind="update", preset=row["preset"], run=row["run"])
    if ours is None:
        return ""
    return f"{row['ms_per_step']['median'] / ours['ms_per_step']['median']:.1f}{unit}"


def _found(report: Report, **wanted: Any) -> Row | None:
    """The last row that has these values."""
    fitting = [
        row for row in report["rows"] if all(row.get(name) == v for name, v in wanted.items())
    ]
    return fitting[-1] if fitting else None


def _ms(row: Row) -> str:
    return _figure(row["ms_per_step"])


def _figure(spread: Row) -> str:
    """The median with the quartiles around it, to three digits."""
    low, median, high = (f"{spread[name]:.3g}" for name in ("low", "median", "high"))
    return f"{median} ({low} to {high})"
