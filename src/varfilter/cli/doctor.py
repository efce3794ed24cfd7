"""`varfilter doctor`."""

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varfilter.testing.doctor import Row


@dataclass(frozen=True)
class Doctor:
    """Run the oracles on this machine's hardware and print a table.

    Kalman against the dense joint Gaussian, bootstrap particles against Kalman, variational
    bounds below the evidence, the converged E-step against the exact posterior, time-parallel
    against step-by-step gradients, stream against run, padded against unpadded, missing
    elements against Kalman. Exit code 1 if any of them fails.

    example: varfilter doctor --json > doctor.json
    """

    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        from varfilter.testing.doctor import examine

        begin = time.perf_counter()
        if self.json:
            rows = list(examine())
            print(_as_json(rows, time.perf_counter() - begin))
        else:
            rows = _print_rows(examine())
        return 0 if all(row.passed for row in rows) else 1


def _as_json(rows: "list[Row]", seconds: float) -> str:
    import jax

    from varfilter import __version__

    return json.dumps(
        {
            "passed": all(row.passed for row in rows),
            "checks": [{**asdict(row), "passed": row.passed} for row in rows],
            "varfilter": __version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
            "device": str(jax.devices()[0].device_kind),
            "seconds": round(seconds, 1),
        },
        indent=1,
    )


def _print_rows(rows: "Iterator[Row]") -> "list[Row]":
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("check", "value", "tolerance", "pass")
    seen = []
    with console.status("running the first check ...") as status:
        for row in rows:
            seen.append(row)
            value = "failed" if row.value is None else f"{row.value:.1e}"
            verdict = "[green]yes" if row.passed else f"[bold red]NO[/] {row.note}"
            table.add_row(row.check, value, f"{row.tolerance:.1e}", verdict)
            status.update(f"{len(seen)} checks done, the last: {row.check}")
    console.print(table)
    failed = sum(not row.passed for row in seen)
    console.print(f"{failed} of {len(seen)} checks failed." if failed else "All checks passed.")
    return seen
