"""All experiments that have a name."""

from varfilter.experiments.experiment import Experiment, nearest
from varfilter.experiments.paper import paper_experiments

EXPERIMENTS: dict[str, Experiment] = paper_experiments()


def named(name: str) -> Experiment:
    """The experiment of a name; an error that has the nearest name."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    if name == "table":
        raise ValueError(
            "The experiment for tables takes its sizes from yours: give the path of the file in"
            " the place of a name, such as `varfilter train readings.csv`."
        )
    raise ValueError(
        f"There is no experiment {name!r}.{nearest(name, EXPERIMENTS)} `varfilter list` shows them"
        " all; or give the path of a table, such as readings.csv, or the folder of a run."
    )
