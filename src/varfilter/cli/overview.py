"""What `train` says before it starts, and what it corrects of that after the first updates."""

import statistics
from typing import Any

from varfilter._text import count, in_options, say_labelled
from varfilter.data.sets.registry import CATALOGUE, data_folder, locate
from varfilter.experiments.costs import VALIDATION, duration, rough_duration
from varfilter.runs.validation import fewest_stale

# Updates that are timed before the guess is corrected, and for how long at least.
NUM_TIMED, SECONDS_TIMED = 3, 5.0
SPLITS = ("train", "valid", "test")


def overview(run: Any, dataset: Any, plan: Any) -> list[tuple[str, str]]:
    """(label, sentence) of each line: the data, the model, the schedule, what it will take."""
    return [
        ("data", f"{dataset.name}: {run.medium.plural}, from {_place(run.experiment.data)}"),
        ("", _counts(dataset)),
        *(("", in_options(note, run.experiment.data.flags())) for note in dataset.notes),
        ("model", _model(plan)),
        ("training", _training(plan)),
        *(_costs(plan) if plan.left else []),
        ("run", str(run.folder)),
    ]


class Correction:
    """Watches the first updates, and says once what they really take.

    Only the time from one dispatch of updates to the next counts, with nothing between them: a
    validation, and whatever is compiled for it, is none of it. The first dispatch compiles, and so
    does one of another length: the median of an update leaves them out.
    """

    def __init__(self, plan: Any):
        self.plan = plan
        self.before: Any = None
        self.num_timed, self.seconds = 0, 0.0
        self.paces: list[float] = []
        self.is_said = False

    def show(self, event: Any) -> None:
        """Look at an event of training; say it when enough updates were timed."""
        from varfilter.runs.training import Updated

        before, self.before = self.before, event if isinstance(event, Updated) else None
        if self.is_said or before is None or self.before is None:
            return
        updates, seconds = event.step - before.step, event.seconds - before.seconds
        if updates < 1:
            return
        self.num_timed, self.seconds = self.num_timed + updates, self.seconds + seconds
        self.paces.append(seconds / updates)
        if self.num_timed < NUM_TIMED or self.seconds < SECONDS_TIMED:
            return
        self.is_said = True
        pace = statistics.median(self.paces)
        # What is over in a moment needs no estimate.
        if pace * (self.plan.num_updates - event.step) < SECONDS_TIMED:
            return
        say_labelled([("measured", self._words(pace, event.step))])

    def _words(self, seconds: float, step: int) -> str:
        import jax

        from varfilter.runs.plan import used_gib

        left = seconds * max(self.plan.num_updates - step, 0)
        gib = used_gib(jax.devices()[0])
        memory = "" if gib is None else f"; {gib:.1f} GiB so far"
        return (
            f"{duration(seconds)} an update, so {duration(left)} to the end, or"
            f" {duration(left * (1 + VALIDATION))} with validation at its most{memory}"
        )


def _place(source: Any) -> str:
    """Where the data lie: of a set that has a name, in which file or folder it was found."""
    if source.at is not None:
        return source.at
    entry = CATALOGUE.get(source.source)
    found = None if entry is None else locate(entry, data_folder())
    return source.source if found is None else str(found)


def _counts(dataset: Any) -> str:
    # What is left at the end of each sequence makes no step, so that they are not added up before.
    steps = [int((dataset.split(name).lengths // dataset.rows_per_step).sum()) for name in SPLITS]
    parts = [
        f"{len(dataset.split(name)):,} for {what} ({count(number, 'step')})"
        for name, what, number in zip(
            SPLITS, ("training", "validation", "test"), steps, strict=True
        )
    ]
    shape = "x".join(map(str, dataset.observation_shape)) or "1"
    numbers = "1 number" if shape == "1" else f"{shape} numbers"
    return f"sequences: {', '.join(parts)}; a step is {numbers}"


def _model(plan: Any) -> str:
    experiment, parameters = plan.experiment, plan.parameters
    name = type(experiment.model).__name__.removesuffix("Sizes")
    name = "SRNN for the columns of a table" if name == "Table" else name
    method = type(experiment.filter.inference).__name__
    bound = experiment.filter.bound
    members = experiment.num_members
    return (
        f"{name}, {method if method == 'AVF' else method.lower()}, preset {experiment.preset}:"
        f" {parameters.total:,} parameters ({parameters.model:,} of the model,"
        f" {parameters.inference:,} of the inference)"
        + ("" if members == 1 else f", of {members} members that predict together")
        + ("" if bound == "elbo" else f"; bound {bound}")
    )


def _training(plan: Any) -> str:
    schedule = plan.experiment.schedule
    if not plan.left:
        return f"at its end, step {plan.done:,}: {plan.ended}"
    updates = count(plan.left, "update")
    if plan.done:
        updates = f"{count(plan.left, 'more update')} after step {plan.done:,}"
    text = (
        f"{updates} ({_epochs(plan)}), each on {count(schedule.batch_size, 'window')} of"
        f" {count(plan.window_steps, 'step')}"
    )
    if schedule.patience_epochs is not None:
        epochs = count(schedule.patience_epochs, "epoch")
        validations = count(fewest_stale(schedule.patience_epochs), "validation")
        text += (
            f"; ends sooner if validation has not improved for {epochs} ({validations} at least)"
        )
    return text


def _epochs(plan: Any) -> str:
    if plan.left < plan.updates_per_epoch:
        return f"an epoch has {plan.updates_per_epoch:,}"
    return f"{count(plan.left / plan.updates_per_epoch, 'epoch')} of {plan.updates_per_epoch:,}"


def _costs(plan: Any) -> list[tuple[str, str]]:
    lines = [("expected", _expected(plan)), *(("", text) for text in _alarms(plan))]
    smaller = _smaller(plan)
    return [*lines, ("smaller", smaller)] if smaller else lines


def _expected(plan: Any) -> str:
    found = plan.expected
    if found.update_seconds is None or found.seconds is None:
        return f"not known beforehand on {plan.device}; the first updates will tell"
    memory = "" if found.gib is None else f", {found.gib:.1f} GiB of memory"
    of_all = f" of {plan.num_runs} runs" if plan.num_runs > 1 else ""
    in_all = "to the end" if plan.done else "in all"
    return (
        f"about {rough_duration(found.update_seconds)} an update{of_all},"
        f" {rough_duration(found.seconds)} {in_all} on {plan.device}{memory}. A guess from runs"
        " elsewhere, after compiling: the first updates will tell"
    )


def _alarms(plan: Any) -> list[str]:
    if not plan.is_too_large:
        return []
    return [f"That is more memory than there is here: {plan.available_gib:.1f} GiB are free."]


def _smaller(plan: Any) -> str:
    schedule, half = plan.experiment.schedule, plan.done + plan.left // 2
    epochs = half // plan.updates_per_epoch
    ways: list[str] = []
    if plan.is_cut or not epochs:
        ways += [f"--max-updates {half} takes half the time"] * (half > plan.done)
    else:
        ways += [f"--schedule.num-epochs {epochs} takes half the time"]
    # A run that has begun keeps its sizes.
    if plan.done:
        return ", ".join(ways)
    if schedule.batch_size > 1:
        ways.append(f"--schedule.batch-size {schedule.batch_size // 2} less memory")
    if plan.experiment.preset == "small":
        return "; ".join([*ways, "fewer units (--model. options) less of both"])
    return "; ".join(["--preset small is for two cores and minutes", *ways])
