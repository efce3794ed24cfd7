"""`varfilter demo`, `doctor` and `repair`: that all works here, and in a run's folder."""

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from varfilter._text import tell
from varfilter.cli.exits import Stopping, refusals
from varfilter.cli.options import Command, Number, RunFolder


@dataclass(frozen=True)
class Demo(Command):
    """Train and filter on two simulated worlds, offline, in a few minutes on two cores.

    A linear-Gaussian tracker, where AVF is held against the exact answer, and a pendulum
    filmed in noisy images with missing pixels, where a model is learned from nothing, filters
    a new video, forecasts, and flags an injected fault by its surprise. Prints the tables and
    writes DIR/index.html (one self-contained page) and DIR/results.json.

    example: varfilter demo --out page --seed 1
    """

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("varfilter-demo")
    """The folder to write to; it is made if it is not there."""

    seed: Number = 0
    """All randomness comes from this number: the same seed gives the same results."""

    quick: bool = False
    """Make a twentieth of the updates, to see that all works here; the figures are worse."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        from varfilter.demo import run_demo

        if not 0 <= self.seed < 2**32:
            tell(f"`--seed` must lie in [0, 2^32); got {self.seed}.")
            return 2
        try:
            # Its two worlds have a thread each: one that is inside the compiler when the
            # interpreter ends would abort the process.
            with Stopping():
                run_demo(self.out, self.seed, effort=0.05 if self.quick else 1.0)
        except OSError as error:
            message = f"`--out {self.out}`: cannot write there ({error}). Give another folder."
            tell(message)
            return 2
        return 0


@dataclass(frozen=True)
class Doctor(Command):
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


@dataclass(frozen=True)
class Repair(Command):
    """Put right what is damaged in the folder of a run.

    A damaged run.json is restored from the copy in the newest checkpoint that is whole; of a
    damaged metrics.jsonl the lines that are whole are kept. The damaged files stay, with
    `.damaged` behind their names. Checkpoints are not touched: training leaves bad ones out.

    example: varfilter repair runs/srnn-jsb-avf
    """

    run: RunFolder
    """The folder of a run."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals() as refused:
            from varfilter.runs.repair import repair_run

            done = repair_run(self.run)
            for sentence in done:
                print(sentence)
            if not done:
                print(f"There is nothing to repair in {self.run}.")
        return refused.code


def _as_json(rows: list[Any], seconds: float) -> str:
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


def _print_rows(rows: Iterator[Any]) -> list[Any]:
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
