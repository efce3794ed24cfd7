"""How long the named experiments train, as measured: `varfilter list` tells it beforehand."""

# Seconds of one update on two cores of a CPU: `python benchmarks/experiments.py`. SVG's batch of
# 20 did not fit; this is ten times the time of 2.
CPU_SECONDS = {
    "vrnn-timit-baseline": 4.9,
    "vrnn-timit-avf": 8.6,
    "srnn-timit-baseline": 1.4,
    "srnn-timit-avf": 3.7,
    "svg-kth-baseline": 99.0,
    "svg-kth-avf": 204.0,
    "srnn-music-baseline": 0.086,
    "srnn-music-avf": 0.78,
    "table": 0.044,  # of examples/data/sensors.csv
}
# What an update asked for, where that was more than there was.
CPU_GIB = {"svg-kth-baseline": 43, "svg-kth-avf": 50}
# Minutes of whole runs on one H200, compiling and validations included: those in `results/`.
# Nottingham's were stopped short; this is what all epochs would take at their pace.
H200_MINUTES = {
    "srnn-jsb-baseline": 1.9,
    "srnn-jsb-avf": 3.3,
    "srnn-nottingham-baseline": 3.9,
    "srnn-nottingham-avf": 7.1,
}
# Data of the same shape take the same time.
_SHAPES = {
    **dict.fromkeys(("-piano-", "-musedata-", "-jsb-", "-nottingham-"), "-music-"),
    **{"-timit-sample-": "-timit-", "-weizmann-": "-kth-"},
}


def cpu_minutes(name: str, num_updates: int) -> float | None:
    """Of so many updates on two cores, without validations; None if it was not measured."""
    seconds = CPU_SECONDS.get(_with_shape(name))
    return None if seconds is None else seconds * num_updates / 60


def cpu_gib(name: str) -> int | None:
    """The memory that an update asks for on a CPU, where it is large."""
    return CPU_GIB.get(_with_shape(name))


def h200_minutes(name: str) -> float | None:
    """Of the whole run on one H200; None where there was none."""
    return H200_MINUTES.get(name)


def _with_shape(name: str) -> str:
    for data, shape in _SHAPES.items():
        name = name.replace(data, shape)
    return name
