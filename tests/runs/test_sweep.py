"""Runs that are trained in one program are those of each alone, in folders of their own."""

import dataclasses
import shutil
from contextlib import closing

import numpy as np
import pytest

from refusals import refuses
from tiny_runs import TINY, tiny
from varfilter.experiments import Baseline, FilterChoice
from varfilter.runs import Run, train_run, train_runs
from varfilter.runs.checkpointing import newest_standing
from varfilter.runs.folder import seed_folder, seeds_in
from varfilter.runs.sweep import require_one_program
from varfilter.runs.training import Resumed, Stopped, Validated, Work
from varfilter.training.checkpoints import kept_checkpoints

pytestmark = pytest.mark.usefixtures("as_users_run_it")

NUM_EPOCHS, PER_EPOCH = 5, 2
# Of the second run, all numbers that may be others; the third learns nothing, and is given up.
CHANGES = (
    {},
    {"annealing_epochs": 2, "annealing_power": 1.0, "hidden_elements": 0.3, "semitones": 3},
    {"patience_epochs": 3},
)
RATES = (1e-2, 3e-3, 1e-30)


def experiments(base):
    """Three that differ in numbers alone; two updates an epoch, and none depends on a clock."""
    schedule = dataclasses.replace(
        base.schedule, num_epochs=NUM_EPOCHS, windows_per_epoch=8, hidden_elements=0.1
    )
    found = []
    for seed, (rate, changes) in enumerate(zip(RATES, CHANGES, strict=True)):
        adam = dataclasses.replace(TINY["optimizer"].theta, learning_rate=rate)
        found.append(
            dataclasses.replace(
                base,
                seed=seed,
                optimizer=dataclasses.replace(
                    base.optimizer,
                    theta=adam,
                    phi=adam,
                    dropout=0.1 * (seed + 1),
                    dropout_epochs=2 * seed,
                ),
                schedule=dataclasses.replace(schedule, **changes),
            )
        )
    return found


class World:
    """The songs, three experiments on them, learned end to end, and the folder of their runs."""

    def __init__(self, folder):
        base, self.dataset = tiny("music", folder)
        filter = FilterChoice(Baseline(hidden_size=4, num_layers=1))
        base = dataclasses.replace(base, filter=filter, published=None)
        self.experiments, self.folder = experiments(base), folder / "runs"

    def begun(self, folder=None):
        folder = self.folder if folder is None else folder
        return [Run.begin(seed_folder(folder, e.seed), e, self.dataset) for e in self.experiments]

    def training(self, folder=None, **options):
        runs = self.begun(folder)
        options = {"updates_per_dispatch": PER_EPOCH, "seconds_per_checkpoint": 0.0} | options
        return train_runs(runs, self.dataset, **options)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Left after two epochs, and resumed to the end; `events` are those of both times."""
    world = World(tmp_path_factory.mktemp("several"))
    world.events = []
    with closing(world.training()) as events:
        for each in events:
            world.events.append(each)
            if isinstance(each[0], Validated) and each[0].line["step"] == 2 * PER_EPOCH:
                break
    world.half = shutil.copytree(world.folder, world.folder.parent / "half")
    world.events += list(world.training())
    world.runs = [Run.load(seed_folder(world.folder, seed)) for seed in range(3)]
    return world


def numbers(line):
    """What a line of the metrics says, without the time that it took."""
    found = {name: line[name] for name in ("kl_weight", "train", "valid", "best", "num_skipped")}
    # None where one sequence has no standard error.
    return [float("nan") if x is None else float(x) for x in _flat(found)]


def _flat(value):
    if isinstance(value, dict):
        return [x for name in sorted(value) for x in _flat(value[name])]
    return [x for each in value for x in _flat(each)] if isinstance(value, list) else [value]


def test_each_is_as_if_it_were_trained_alone(world, tmp_path):
    alone = Run.begin(tmp_path / "alone", world.experiments[1], world.dataset)
    list(train_run(alone, world.dataset, updates_per_dispatch=PER_EPOCH))
    lines = world.runs[1].metrics()
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10]
    for line, other in zip(lines, alone.metrics(), strict=True):
        # Products of another shape round otherwise, 1e-7 of a number. Adam's first steps are the
        # learning rate times the sign of a gradient, so that where that is all but 0 a parameter
        # may be 2 * 3e-3 off: some of hundreds, of which few count.
        np.testing.assert_allclose(numbers(line), numbers(other), rtol=2e-3, atol=1e-5)
    assert world.runs[1].trained().step == alone.trained().step
    # A checkpoint of several is one of a run alone, and goes on as such.
    work = Work(world.runs[1], world.dataset, None)
    assert newest_standing(world.runs[1], work.start).standing.step == 10
    # Another seed and another rate are further from it than that.
    other = world.runs[0].metrics()[-1]["valid"]["nats"]
    assert lines[-1]["valid"]["nats"] != pytest.approx(other, rel=5e-3)


def test_one_that_ends_is_left_as_it_is_while_the_others_go_on(world):
    ends = [
        next(each[member] for each in world.events if isinstance(each[member], Stopped))
        for member in range(3)
    ]
    # Nothing was better after the first epoch: three more are its patience.
    assert [end.step for end in ends] == [10, 10, 8]
    assert ends[2].reason == "validation has not improved for 3 epochs"
    assert ends[0].reason == ends[1].reason == "5 epochs, as scheduled"
    for run, end in zip(world.runs, ends, strict=True):
        assert run.metrics()[-1]["step"] == end.step
        assert kept_checkpoints(run.checkpoints)[0][0] == end.step
    # After its end nothing happens to it any more.
    last = max(n for n, each in enumerate(world.events) if isinstance(each[2], Stopped))
    assert all(each[2] is None for each in world.events[last + 1 :])
    assert seeds_in(world.folder) == [0, 1, 2]
    # All have ended: they say so again, and nothing is compiled for it.
    again = list(world.training())
    assert [type(event) for event in again[0]] == [Resumed] * 3
    assert sorted(event.step for each in again[1:] for event in each if event) == [8, 10, 10]


def test_a_crash_while_all_are_written_costs_one_checkpoint(world, tmp_path):
    folder = shutil.copytree(world.half, tmp_path / "half")
    kept = [step for step, _ in kept_checkpoints(seed_folder(folder, 0) / "checkpoints")]
    assert kept[:2] == [4, 2]
    # The newest of one run was not written yet.
    (seed_folder(folder, 1) / "checkpoints" / "step-000000004.safetensors").unlink()
    with closing(world.training(folder)) as events:
        assert [event.step for event in next(events)] == [2, 2, 2]
    # Without any in common, nothing is done.
    for _, path in kept_checkpoints(seed_folder(folder, 1) / "checkpoints"):
        path.unlink()
    (seed_folder(folder, 1) / "best.safetensors").unlink()
    refuses(
        lambda: next(world.training(folder)),
        ValueError, "different steps", "seed-0 at 4", "seed-1 at 0",
        f"varfilter train {seed_folder(folder, 0)}", "--max-updates 4",
    )  # fmt: skip


def test_refusals(world):
    first, second, _ = world.experiments
    runs = world.begun()

    def trained(*others):
        return lambda: next(train_runs(others, world.dataset))

    with runs[1].held():
        refuses(trained(*runs), BlockingIOError, "seed-1", "is being trained in by process")
    # The locks of the others were let go.
    with runs[0].held():
        pass
    refuses(trained(), ValueError, "`runs`", "none")
    refuses(trained(runs[0], runs[0]), ValueError, "`runs`", "a folder each")
    schedule = dataclasses.replace(first.schedule, batch_size=3)
    other = dataclasses.replace(first, schedule=schedule)
    refuses(
        lambda: require_one_program([first, second, other]),
        ValueError, "`schedule.batch_size` is 4", "3 in number 2", "by itself",
    )  # fmt: skip
    theta = dataclasses.replace(first.optimizer.theta, clip_norm=1.0)
    clips = dataclasses.replace(first, optimizer=dataclasses.replace(first.optimizer, theta=theta))
    refuses(lambda: require_one_program([first, clips]), ValueError, "number 1", "clips gradients")
    refuses(
        lambda: Run.begin(
            seed_folder(world.folder, 0), dataclasses.replace(first, seed=1), world.dataset
        ),
        ValueError, "`seed` 0", "got 1", "another `--out`",
    )  # fmt: skip


@pytest.mark.slow
def test_when_half_have_ended_the_others_are_stacked_anew(world, tmp_path):
    """Two end after an epoch, and the third learns what it learned beside them."""
    shorter = [
        dataclasses.replace(each, schedule=dataclasses.replace(each.schedule, num_epochs=epochs))
        for each, epochs in zip(world.experiments, (1, 3, 1), strict=True)
    ]
    runs = [Run.begin(seed_folder(tmp_path, e.seed), e, world.dataset) for e in shorter]
    list(train_runs(runs, world.dataset, updates_per_dispatch=PER_EPOCH))
    assert [run.metrics()[-1]["step"] for run in runs] == [2, 6, 2]
    for line, other in zip(runs[1].metrics(), world.runs[1].metrics(), strict=False):
        # As above: another shape rounds otherwise.
        np.testing.assert_allclose(numbers(line), numbers(other), rtol=2e-3, atol=1e-5)
