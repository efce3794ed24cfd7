"""`varfilter demo`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Demo:
    """Train and filter on two simulated worlds, offline, in under three minutes on two cores.

    A linear-Gaussian tracker, where AVF is held against the exact optimum, and a pendulum
    filmed in noisy images with missing pixels, where a model is learned from nothing, filters
    a new film, forecasts, and flags an injected fault by its surprise. Prints the tables and
    writes DIR/index.html (one self-contained page) and DIR/results.json.

    example: varfilter demo --out page --seed 1
    """

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("varfilter-demo")
    """The folder to write to; it is made if it is not there."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """All randomness comes from this number: the same seed gives the same results."""

    quick: bool = False
    """Make a twentieth of the updates, to see that all works here; the figures are worse."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        from varfilter.demo import run_demo

        if not 0 <= self.seed < 2**32:
            print(f"`--seed` must lie in [0, 2^32); got {self.seed}.", file=sys.stderr)
            return 2
        try:
            run_demo(self.out, self.seed, effort=0.05 if self.quick else 1.0)
        except OSError as error:
            message = f"`--out {self.out}`: cannot write there ({error}). Give another folder."
            print(message, file=sys.stderr)
            return 2
        return 0
