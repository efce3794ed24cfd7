"""How a run is made again: its command with all that was overridden, and how far it came."""

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from varfilter._text import count
from varfilter.experiments.experiment import Experiment, differences
from varfilter.experiments.paper import EXPERIMENTS, TEMPLATES, own_experiment
from varfilter.experiments.presets import with_preset
from varfilter.runs import Run
from varfilter.runs.commands import kept_commands, last_budget
from varfilter.runs.plan import reached_in
from varfilter.runs.validation import StoppingRule


def command(run: Run) -> str | None:
    """The line that makes such a run again: every field that was given, the seed and the budget.

    The preset of the user's own recordings depends on the machine, and is always said. None of an
    experiment that was put together in Python of parts that no command line puts together.
    """
    mine = run.experiment
    name = _name_of(mine)
    words = ["varfilter", "train", name or _place_of(run)]
    given = _unchanged(mine)
    usual = EXPERIMENTS[name].preset if name else None
    if mine.preset != usual and mine.model.one_preset is None:
        words += ["--preset", mine.preset]
    if type(mine.filter.inference) is not type(_before_method(mine).filter.inference):
        words += ["--method", type(mine.filter.inference).__name__.lower()]
    for field, (_, value) in differences(given, mine).items():
        if field in ("name", "preset") or field.startswith("published"):
            continue
        if field.endswith("kind"):
            return None
        flag = "--" + field.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--{'.no-'.join(flag[2:].rsplit('.', 1))}")
        elif isinstance(value, str) and value.startswith("-"):  # else it would be an option
            words.append(f"{flag}={value}")
        else:
            values = value if isinstance(value, list) else [value]
            words += [flag, *map(str, values)]
    if (budget := _budget(run)) is not None:
        words += ["--max-updates", str(budget)]
    if (out := _typed_out(run.folder)) is not None:
        words += ["--out", out]
    return shlex.join(words)


def in_python(run: Run) -> str:
    """The line of Python that makes such a run again, of the same data."""
    return (
        f"train_run(Run.begin('again', Run.load({str(run.folder)!r}).experiment, dataset)"
        + ("" if (budget := _budget(run)) is None else f", max_updates={budget}")
        + ")"
    )


def _place_of(run: Run) -> str:
    """Where the data lie: as that was typed, or from here; else the whole path.

    A page that is shown to others need not tell how the folders of a machine are called.
    """
    place = Path(run.experiment.data.source)
    for each in kept_commands(run.folder):
        # Behind `train` stands what is trained.
        for before, word in itertools.pairwise(map(str, each["words"])):
            parts = Path(word).parts
            if before == "train" and parts and place.parts[-len(parts) :] == parts:
                return word
    is_below = place.is_absolute() and place.is_relative_to(Path.cwd())
    # A folder that is called like an experiment has to be told from it.
    if not is_below or place.name in EXPERIMENTS:
        return str(place)
    return str(place.relative_to(Path.cwd()))


def _typed_out(folder: Path) -> str | None:
    """The folder of a single run as it was typed; None where it was not."""
    words = [str(word) for each in kept_commands(folder)[:1] for word in each["words"]]
    if any(word.partition("=")[0] == "--seeds" for word in words):
        return None  # that is the folder of several
    out = None
    for word, following in itertools.pairwise([*words, ""]):
        if word.startswith("--out="):
            out = word.partition("=")[2]
        elif word == "--out":
            out = following
    return out or None


def _budget(run: Run) -> int | None:
    """How many updates were made, of a run that its own schedule did not end.

    Whether it was cut short by `--max-updates`, by a signal or from Python is the same to who
    makes it again. None of one that came to its end, which comes to it again.
    """
    reached = reached_in(run.folder)
    if not reached.step:
        return last_budget(run.folder)
    if not (lines := run.metrics()):  # it was stopped before it was ever validated
        return reached.step
    updates_per_epoch = round(lines[-1]["step"] / lines[-1]["epoch"])
    rule = StoppingRule(run.experiment.schedule, updates_per_epoch)
    ended = rule.reason(
        reached.step,
        validated=reached.validated,
        best=reached.best,
        validation=reached.validation,
    )
    return reached.step if ended is None else None


def typed(folder: Path) -> list[str]:
    """The commands as they were typed, each with the update that it began at."""
    found = kept_commands(folder)
    lines = [shlex.join(each["words"]) for each in found]
    if len(lines) < 2:
        return lines
    begun = (f"from update {each['step']:,}" for each in found)
    return [f"{line}  ({where})" for line, where in zip(lines, begun, strict=True)]


def epochs_in_words(run: Run, lines: Sequence[dict[str, Any]]) -> str:
    """How many epochs a run has had, of those of its schedule, or of the paper's beside that."""
    epochs = lines[-1]["epoch"] if lines else 0
    return f"{epochs:.4g} of {planned_epochs(run):,}"


def planned_epochs(run: Run) -> int:
    """The epochs of the paper's schedule where a run stands beside its number; else of its own."""
    mine = run.experiment
    name = _name_of(mine)
    if mine.published is not None and name is not None:
        return EXPERIMENTS[name].schedule.num_epochs
    return mine.schedule.num_epochs


def brevity(run: Run, lines: Sequence[dict[str, Any]]) -> str | None:
    """A warning that a run stands beside a number of the paper that took longer; None: it does not.

    A run that ended early because validation no longer improved was not cut short.
    """
    published, of = run.experiment.published, planned_epochs(run)
    epochs = lines[-1]["epoch"] if lines else 0
    if published is None or epochs >= of:
        return None
    return (
        f"The paper's number is of {count(of, 'epoch')}; this run has had {epochs:.4g} of them. The"
        " two do not compare."
    )


def _name_of(mine: Experiment) -> str | None:
    """The name of the experiment that a run is of; None for the user's own data.

    One that was varied has the name of another with something after it. One that was given a name
    of its own is of that on the same data with which it has most in common.
    """
    alike = {
        name: experiment
        for name, experiment in EXPERIMENTS.items()
        if name not in TEMPLATES
        # A folder may be called like an experiment.
        and type(experiment.data) is type(mine.data)
        and experiment.data.source == mine.data.source
    }
    named = [name for name in alike if f"{mine.name}-".startswith(f"{name}-")]
    if named:
        return max(named, key=len)
    return min(alike, key=lambda name: len(differences(alike[name], mine)), default=None)


def _unchanged(mine: Experiment) -> Experiment:
    """The experiment without any of what was given for it but the preset and the method."""
    found, own = _before_method(mine), type(mine.filter.inference)
    if isinstance(found.filter.inference, own):
        return found
    return replace(found, filter=replace(found.filter, inference=own()))


def _before_method(mine: Experiment) -> Experiment:
    """The experiment without any of what was given for it but the preset."""
    name = _name_of(mine)
    if name is not None:
        return with_preset(EXPERIMENTS[name], mine.preset)
    bare = type(mine.data)(mine.data.source)
    return replace(own_experiment(mine.data, mine.preset), data=bare)
