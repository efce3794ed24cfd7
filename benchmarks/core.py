"""What the core costs: steps, growth with time, and a live stream beside its peers.

    pip install 'varfilter[benchmark]'
    python benchmarks/core.py [--quick] [--json FILE]

It prints three tables in one run (`--quick` shrinks every size, to see that it works):

1. each inference: time of one filter step and time to compile it, on a small linear-Gaussian
   model and on SRNN at the sizes of the paper's music experiments;
2. growth: the time of `run` for longer sequences, and the time and memory of a `Stream` that
   has run for long;
3. one `Stream.push` against one step of filterpy's and of cuthbert's Kalman filter.

Training is measured by `speed.py`.

The result is the ratios, not the seconds. Contestants take turns, so that whatever else the
machine does strikes them alike; each figure is a median over the rounds, and each ratio the
median of the rounds' own ratios. Every clock stops when the arrays are there.
"""

import argparse
import importlib
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

PEERS = ("filterpy.kalman", "cuthbert.gaussian.kalman")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    arguments = parser.parse_args()
    require_peers()
    if not arguments.quick:
        # A compile time that was read from a cache says nothing.
        jax.config.update("jax_enable_compilation_cache", False)

    console = Console()
    results: dict[str, Any] = {"machine": machine(), "quick": arguments.quick}
    console.print(" | ".join(f"{name}: {value}" for name, value in results["machine"].items()))
    for name in ("steps", "growth", "streaming"):
        section = importlib.import_module(name)
        with console.status(f"measuring {name} ..."):
            rows = section.measure(quick=arguments.quick)
        results[name] = rows
        for table in tables(section, rows):
            console.print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
        console.print(f"Wrote {arguments.json}.")


def require_peers() -> None:
    """The filters to compare with, or an error that says how to get them."""
    for name in PEERS:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SystemExit(
                f"`{name}` cannot be imported ({error}); this benchmark compares with it."
                " Run: pip install 'varfilter[benchmark]'"
            ) from None


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def tables(section: Any, rows: dict[str, list[dict[str, Any]]]) -> list[Table]:
    """A section's rows as tables; `section.COLUMNS` names and formats the columns."""
    made = []
    for title, columns in section.COLUMNS.items():
        table = Table(title=section.TITLES[title], title_justify="left")
        for index, (label, _, _) in enumerate(columns):
            table.add_column(label, justify="right" if index else "left", no_wrap=not index)
        for row in rows[title]:
            table.add_row(*(form.format(row[key]) for _, key, form in columns))
        made.append(table)
    return made


if __name__ == "__main__":
    main()
