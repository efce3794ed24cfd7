"""Validation takes at most a fifth of a run, whatever it costs, always on the same sequences."""

import dataclasses
import itertools
from dataclasses import replace

import numpy as np
import pytest

from tiny_runs import SRNN, TINY, chorales
from varfilter.experiments import Schedule, experiment_named
from varfilter.runs import Run, train_run, train_runs
from varfilter.runs.training import Stopped, Validated, Validating
from varfilter.runs.validation import (
    SHARE,
    StoppingRule,
    Validation,
    ValidationPart,
    affordable,
    stretched,
    subset,
)


def seconds_of(validation, num_epochs, num_scored, *, full, few):
    """What all validations of a run take: those of the schedule, and the full ones of the best."""
    count = num_epochs // validation.epochs
    if validation.num_sequences is None:
        return count * full
    fulls = 0 if validation.epochs_per_full is None else num_epochs // validation.epochs_per_full
    return count * few * num_scored + fulls * full


# Epochs and full validations from much shorter to much longer than each other.
CASES = list(
    itertools.product((1, 30, 100, 800), (0.1, 1.0, 60.0), (0.01, 1.0, 50.0, 3000.0), (1, 12, 135))
)


@pytest.mark.parametrize(("num_epochs", "epoch", "full", "count"), CASES)
def test_at_most_a_fifth(num_epochs, epoch, full, count):
    each = full / count
    found = affordable(num_epochs, count, epoch=epoch, full=full, sequence=each)
    if found.num_sequences is not None:
        few = each * found.num_sequences
        found = stretched(found, num_epochs, epoch=epoch, full=full, few=few)
    updates = num_epochs * epoch
    took = seconds_of(found, num_epochs, found.num_sequences, full=full, few=each)
    # A fifth of the whole is a quarter of the updates. Exactly: no tolerance but rounding.
    assert took <= SHARE * updates * (1 + 1e-9)
    if found.num_sequences is not None:
        assert 1 <= found.num_sequences <= count
        # Full validations come with others: the best that they score was found by those.
        assert found.epochs_per_full is None or found.epochs_per_full % found.epochs == 0


def test_what_is_cheap_is_scored_whole_and_often():
    # A tenth of the updates' time: every epoch. Half of it: every second one.
    assert affordable(100, 20, epoch=1.0, full=0.1, sequence=0.01) == Validation(1)
    assert affordable(100, 20, epoch=1.0, full=0.5, sequence=0.01) == Validation(2)


def test_what_costs_more_than_the_run_is_never_scored_whole():
    # 30 s of updates allow 7.5 s; a sequence takes 0.1 s, and 30 validations have 2 of them each.
    found = affordable(30, 1000, epoch=1.0, full=100.0, sequence=0.1)
    assert found == Validation(1, 2, None)


def test_few_that_cost_as_much_as_many_are_scored_less_often():
    found = Validation(5, 20, 50)
    # 100 epochs of 1 s allow 25 s, of which two full ones take 10: 15 s for those between, each of
    # which takes 3 s, are 5 of them.
    assert stretched(found, 100, epoch=1.0, full=5.0, few=3.0) == Validation(20, 20, 60)


def test_the_subset_is_of_one_length_and_the_same_everywhere():
    steps = np.array([1, 9, 12, 15, 200, 300, 16, 10, 1000, 0])
    found = subset(steps)
    # Padded to 16, as the middle one is; those of one step have nothing to score.
    assert sorted(found) == [1, 2, 3, 6, 7]
    assert found.tolist() == subset(steps).tolist()


def tiny(epochs_per_validation=None, **changes):
    schedule = Schedule(
        num_epochs=6, batch_size=4, num_steps=6, windows_per_epoch=8,
        epochs_per_validation=epochs_per_validation, **changes,
    )  # fmt: skip
    settings = TINY | {"schedule": schedule}
    return dataclasses.replace(experiment_named("srnn-jsb-avf"), model=SRNN, **settings)


def events_of(run, dataset, **options):
    return list(train_run(run, dataset, updates_per_dispatch=1, **options))


def test_what_was_settled_is_on_record_and_holds(tmp_path):
    dataset = chorales()
    run = Run.begin(tmp_path / "run", tiny(), dataset)
    events = events_of(run, dataset, max_updates=4)
    known = Run.load(run.folder).record["validation"]
    assert Validation.from_json(known) == Validation(**known)
    # Put other numbers there, as another machine may have found them: they are what counts.
    run.remember(validation={"epochs": 2, "num_sequences": 1, "epochs_per_full": 4})
    events = events_of(run, dataset)
    begun = [event for event in events if isinstance(event, Validating)]
    assert [(event.step, event.num_sequences, event.of) for event in begun] == [
        (8, 1, 2),
        (12, 1, 2),
    ]
    lines = [event.line for event in events if isinstance(event, Validated)]
    assert [(line["valid"]["num_sequences"], line["valid"]["of"]) for line in lines] == [(1, 2)] * 2
    # The best so far is scored on all at epoch 4, and at the end if it is another one then.
    best = min(run.metrics()[-2:], key=lambda line: line["valid"]["nats"])
    stopped = events[-1]
    assert isinstance(stopped, Stopped)
    if best["step"] == stopped.best.step:
        assert stopped.best.full is not None
        full = [line["full"] for line in lines if "full" in line][-1]
        assert full["step"] == stopped.best.step
        assert full["num_sequences"] == 2


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_the_validation_that_is_measured_is_announced_too(num_seeds, tmp_path, monkeypatch):
    """It is the first, and compiled: nothing else is said for as long."""
    dataset, seen = chorales(), []

    def settled(part, *_, **__):
        seen.append(("measured", part.num_sequences))
        return Validation(3)

    monkeypatch.setattr(ValidationPart, "settled", settled)
    runs = [
        Run.begin(tmp_path / f"{seed}", dataclasses.replace(tiny(), seed=seed), dataset)
        for seed in range(num_seeds)
    ]
    options = {"max_updates": 6, "updates_per_dispatch": 1}
    if num_seeds == 1:
        events = train_run(runs[0], dataset, **options)
    else:
        events = (each[0] for each in train_runs(runs, dataset, **options))
    for event in events:
        of = event.of if isinstance(event, Validating) else None
        seen.append((type(event).__name__, of))
    # An epoch of two updates, of which the first is compiled; three epochs to the validation.
    updated = ("Updated", None)
    assert seen[:6] == [updated, updated, ("Validating", 2), ("measured", 2), updated, updated]
    assert seen[8:10] == [("Validating", 2), ("Validated", None)]


@pytest.mark.parametrize(
    ("patience", "apart", "epochs"),
    # Every epoch validated, patience is what it says; else it is as many validations, or three.
    [(1, 1, 1), (2, 1, 2), (10, 1, 10), (1, 5, 5), (2, 5, 10), (10, 5, 15), (20, 5, 20)],
)
def test_patience_is_what_was_asked_for(patience, apart, epochs):
    rule = StoppingRule(Schedule(patience_epochs=patience), updates_per_epoch=4)
    validation, best = Validation(apart), 4 * apart

    def reason(step):
        return rule.reason(step, validated=step, best=best, validation=validation)

    steps = range(best, best + 4 * 61, 4 * apart)
    end = next(step for step in steps if reason(step) is not None)
    assert end == best + 4 * epochs
    said = reason(end)
    assert said.startswith(f"validation has not improved for {epochs} epoch")
    # How many validations that were is said where it is not the same number.
    assert (f", {epochs // apart} validation" in said) == (apart > 1)
    # Not between validations, and not before the KL has its full weight.
    assert rule.reason(end, validated=end - 1, best=best, validation=validation) is None
    slow = replace(rule, schedule=replace(rule.schedule, annealing_epochs=apart + 1))
    assert slow.reason(end, validated=end, best=best, validation=validation) is None


def test_training_that_no_longer_helps_is_given_up(tmp_path):
    dataset = chorales()
    # Nothing is learned at this rate, but by chance: the first validation stays the best for long.
    still = dataclasses.replace(TINY["optimizer"].theta, learning_rate=1e-30)
    experiment = tiny(1, patience_epochs=3)
    optimizer = dataclasses.replace(experiment.optimizer, theta=still, phi=still)
    experiment = dataclasses.replace(experiment, optimizer=optimizer)
    run = Run.begin(tmp_path / "run", experiment, dataset)
    stopped = events_of(run, dataset)[-1]
    assert stopped.step == 2 * 4
    assert stopped.reason == "validation has not improved for 3 epochs"
    assert [line["epoch"] for line in run.metrics()] == [1, 2, 3, 4]
    assert np.ptp([line["valid"]["nats"] for line in run.metrics()]) == 0.0
    # A schedule that says when is not measured.
    assert "validation" not in run.record
