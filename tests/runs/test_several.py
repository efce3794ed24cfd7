"""Runs that are trained in one program are those of each alone, in folders of their own."""

import dataclasses

import numpy as np
import pytest

from tiny_runs import SRNN, TINY, chorales
from varfilter.experiments import Schedule, experiment_named
from varfilter.runs import Run, train_run, train_runs
from varfilter.runs.several import seed_folder, seeds_in

# Two updates an epoch, one validation an epoch, three epochs; nothing depends on a clock.
SCHEDULE = Schedule(
    num_epochs=3, batch_size=4, num_steps=6, windows_per_epoch=8, epochs_per_validation=1,
    annealing_epochs=2,
)  # fmt: skip
ADAM = TINY["optimizer"].theta
# The second learns at another rate, and its KL has its weight sooner.
RATES, ANNEALING = (1e-2, 3e-3), (2, 1)


def experiment(seed, *, rate=1e-2, **changes):
    adam = dataclasses.replace(ADAM, learning_rate=rate)
    settings = TINY | {
        "schedule": dataclasses.replace(SCHEDULE, **changes),
        "optimizer": dataclasses.replace(TINY["optimizer"], theta=adam, phi=adam),
    }
    return dataclasses.replace(experiment_named("srnn-jsb-avf"), model=SRNN, seed=seed, **settings)


def settings():
    return [
        experiment(seed, rate=rate, annealing_epochs=epochs)
        for seed, (rate, epochs) in enumerate(zip(RATES, ANNEALING, strict=True))
    ]


def begun(folder, experiments, dataset):
    return [Run.begin(seed_folder(folder, each.seed), each, dataset) for each in experiments]


@pytest.fixture(scope="module")
def dataset():
    return chorales()


@pytest.fixture(scope="module")
def together(tmp_path_factory, dataset):
    """Two runs that were stopped twice on their way, and went on."""
    folder = tmp_path_factory.mktemp("runs") / "both"
    for max_updates in (3, 4, None):
        runs = begun(folder, settings(), dataset)
        events = list(train_runs(runs, dataset, max_updates=max_updates, updates_per_dispatch=2))
    return folder, runs, events


def numbers(run):
    """What a run learned and how it was scored, without the time that it took."""
    lines = [
        {name: value for name, value in line.items() if name not in ("seconds", "checksum")}
        for line in run.metrics()
    ]
    return lines, run.trained()


def flat(value):
    if isinstance(value, dict):
        return [x for name in sorted(value) for x in flat(value[name])]
    if isinstance(value, list):
        return [x for each in value for x in flat(each)]
    return [np.nan if value is None else float(value)]


def test_each_is_as_if_it_were_trained_alone(together, dataset, tmp_path):
    folder, runs, _ = together
    assert seeds_in(folder) == [0, 1]
    for each in settings():
        alone = Run.begin(tmp_path / str(each.seed), each, dataset)
        list(train_run(alone, dataset, updates_per_dispatch=2))
        lines, trained = numbers(runs[each.seed])
        expected, other = numbers(alone)
        # It validated at two steps more, where it was stopped; training does not know of that.
        expected = [line for line in expected if line["step"] in (2, 4, 6)]
        lines = [line for line in lines if line["step"] in (2, 4, 6)]
        assert [line["step"] for line in lines] == [2, 4, 6]
        # Products of another shape round otherwise, 1e-7 of a number; six updates by Adam, whose
        # first steps have the size of the learning rate whatever the gradient, magnify that.
        names = ("kl_weight", "valid", "best", "num_skipped")
        for line, alike in zip(lines, expected, strict=True):
            picked, wanted = (flat({n: x[n] for n in names}) for x in (line, alike))
            np.testing.assert_allclose(picked, wanted, rtol=1e-3)
        assert trained.step == other.step
    # They differ from each other by far more.
    first, second = (flat(run.metrics()[-1]["valid"]) for run in runs)
    assert not np.allclose(first, second, rtol=1e-2)
