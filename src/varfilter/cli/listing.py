"""`varfilter list`: the experiments that have a name."""

import json
from dataclasses import dataclass
from typing import Any

from varfilter.cli.options import Command


@dataclass(frozen=True)
class ListExperiments(Command):
    """The experiments that have a name: data, size, length, time, the paper's number.

    The paper's number is the free energy in nats per step on the test part; beside it the same
    per step that was scored: the released code divides by one step more.

    example: varfilter list --json
    """

    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        found = _described()
        if self.json:
            print(json.dumps({"experiments": found}, indent=1))
        else:
            _print(found)
        return 0


def _described() -> dict[str, dict[str, Any]]:
    from varfilter.data.sets.registry import CATALOGUE, data_folder, locate
    from varfilter.experiments import EXPERIMENTS
    from varfilter.experiments.costs import (
        cpu_gib,
        cpu_minutes,
        h200_minutes,
        num_updates,
        parameters,
    )

    folder, found = data_folder(), {}
    for name, experiment in EXPERIMENTS.items():
        # The user's own data are no entry, and always here.
        entry = CATALOGUE.get(experiment.data.source)
        published, updates = experiment.published, num_updates(experiment)
        found[name] = {
            "data": experiment.data.source,
            "is_here": entry is None or not entry.places or bool(locate(entry, folder)),
            "num_parameters": parameters(name),
            "num_epochs": experiment.schedule.num_epochs,
            "num_updates": updates,
            "h200_minutes": h200_minutes(name),
            "cpu_minutes": cpu_minutes(name, updates),
            "cpu_gib": cpu_gib(name),
            "small_cpu_minutes": _small_minutes(name, experiment),
            "published": published
            and {
                "table": published.table,
                "nats": published.nats,
                "corrected": published.corrected,
                "num_iterations": published.num_iterations,
            },
        }
    return found


def _small_minutes(name: str, experiment: Any) -> float | None:
    """Minutes of the updates of the small preset on two cores."""
    from varfilter.experiments.costs import cpu_minutes, num_updates
    from varfilter.experiments.presets import with_preset

    if experiment.preset == "small":
        return cpu_minutes(name, num_updates(experiment))
    return cpu_minutes(f"{name}-small", num_updates(with_preset(experiment, "small")))


def _print(found: dict[str, dict[str, Any]]) -> None:
    from varfilter.experiments.presets import PRESETS

    titles = ("experiment", "data", "parameters", "epochs", "updates", "on H200", "on CPU", "paper")
    rows: list[tuple[str, ...]] = [titles]
    for name, facts in found.items():
        published = facts["published"]
        rows.append(
            (
                name,
                facts["data"] + ("" if facts["is_here"] else " (not here)"),
                "-" if facts["num_parameters"] is None else f"{facts['num_parameters'] / 1e6:.1f}M",
                str(facts["num_epochs"]),
                str(facts["num_updates"]),
                _duration(facts["h200_minutes"]),
                _duration(facts["cpu_minutes"]) + ("" if facts["cpu_gib"] is None else "*"),
                f"{published['nats']:g} ({published['corrected']:g})" if published else "-",
            )
        )
    # Plain columns: they fit a line and can be cut and searched.
    widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
    for row in rows:
        words = (
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(words).rstrip())
    print("\nTimes: of runs on one H200; of a few updates, times their number, on two CPU cores.")
    if memory := max(facts["cpu_gib"] or 0 for facts in found.values()):
        print(f"* which takes up to {memory:g} GiB of memory there.")
    small = [facts["small_cpu_minutes"] for facts in found.values()]
    least, most = (_duration(pick(m for m in small if m)) for pick in (min, max))
    for name, text in PRESETS.items():
        print(f"--preset {name}: {text}.")
    print(f"The small ones have {least} to {most} of updates on two cores.")
    print(
        "Paper: nats per step as printed (per step that was scored)."
        "\nTo get data: varfilter data fetch NAME. To begin: varfilter train EXPERIMENT"
        "\nFor a table, the file is the name: varfilter train readings.csv"
    )


def _duration(minutes: float | None) -> str:
    if minutes is None:
        return "-"
    for unit, length in (("d", 1440), ("h", 60)):
        if minutes >= 2 * length:
            return f"{minutes / length:.0f} {unit}"
    return f"{max(minutes, 1):.0f} min"
