"""What a report says of a run, as numbers; the page and the JSON file are made of it."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from varfilter.data.dataset import Dataset, Family
from varfilter.distributions import Bernoulli
from varfilter.experiments import EXPERIMENTS, Run, Source
from varfilter.experiments.experiment import as_json, differences
from varfilter.experiments.models import TableSizes
from varfilter.experiments.tables import table_experiment
from varfilter.filters import AbstractFilter
from varfilter.model import AbstractModel
from varfilter.outputs import Medium, medium
from varfilter.report.calibration import calibration
from varfilter.report.inspection import Looked, look, loudest_window, most_surprising, names_of
from varfilter.runs.training import summary
from varfilter.training.evaluation import Evaluation, HeldOut

# Numbers of a batch that is scored at once: 64 MiB, several times as much while it is filtered.
BATCH = 1 << 24
NUM_RANKED = 5
# Half a second of speech, as the windows of the paper.
SOUND_STEPS = 40


class Amount(NamedTuple):
    """How much of a split is looked at closely, and how much of that is drawn."""

    num_sequences: int
    num_drawn: int
    num_steps: int
    num_samples: int = 64


AMOUNTS: dict[Medium, Amount] = {
    "music": Amount(8, 2, 200),
    "sound": Amount(4, 2, 200),
    "film": Amount(3, 2, 40, 24),
    "table": Amount(4, 1, 300),
    "array": Amount(4, 2, 200),
}


@dataclass(frozen=True)
class Findings:
    """Of one run: `numbers` is plain JSON; `drawn` are the sequences that are shown."""

    label: str
    dataset: Dataset
    medium: Medium
    numbers: dict[str, Any]
    drawn: list[Looked]


def findings(run: Run, label: str, *, split: str, seed: int) -> Findings:
    """Score the split whole, and look closely at some of it."""
    model, filter, step, valid = run.trained()
    loaded = run.loaded
    dataset = loaded.dataset
    key = jax.random.key(seed)
    scores = scored(run, dataset, model, filter, split=split, seed=seed)
    what = medium(loaded.table or dataset)
    amount = AMOUNTS[what]
    chosen = _chosen(scores, amount.num_sequences, seed)
    looked = look(
        filter, model, dataset, key, chosen,
        split=split, most_steps=amount.num_steps, num_samples=amount.num_samples,
    )  # fmt: skip
    drawn = looked[: amount.num_drawn]
    if what == "sound":
        drawn = [loudest_window(each, SOUND_STEPS) for each in drawn]
    numbers = {
        "label": label,
        **_summary(run, dataset),
        "num_parameters": {"model": _size(model), "inference": _size(filter)},
        "best_step": step,
        "best_valid": valid,
        "split": split,
        "results": {**summary(scores), "published": _published(run)},
        "calibration": calibration(dataset, looked),
        "sequences": ranked(dataset, split, scores),
        "looked_at": [{"name": each.name, "num_steps": len(each.xs)} for each in looked],
        "num_samples": amount.num_samples,
        "drawn": [
            {
                "name": each.name,
                "first_step": each.first,
                "last_step": each.first + len(each.xs) - 1,
                "num_steps": each.num_steps,
                "most_surprising": most_surprising(each),
            }
            for each in drawn
        ],
        "metrics": run.metrics(),
    }
    return Findings(label, dataset, what, numbers, drawn)


def scored(
    run: Run,
    dataset: Dataset,
    model: AbstractModel,
    filter: AbstractFilter,
    *,
    split: str,
    seed: int,
) -> Evaluation:
    """The split, whole, in batches that fit in memory."""
    longest = int(np.max(dataset.split(split).lengths, initial=1)) // dataset.rows_per_step
    batch_size = BATCH // max(1, longest * dataset.num_elements)
    batch_size = max(1, min(batch_size, 4 * run.experiment.schedule.batch_size))
    held_out = HeldOut(dataset, split=split, batch_size=batch_size, growth=2)
    return held_out.evaluate(filter, model, jax.random.key(seed))


def labels(runs: Sequence[Run]) -> list[str]:
    """The experiment's name of each run; with the seed, or the folder, where two have the same."""
    names = [run.experiment.name for run in runs]
    for extra in (lambda run: f"seed {run.experiment.seed}", lambda run: str(run.folder)):
        counts = Counter(names)
        names = [
            name if counts[name] == 1 else f"{name}, {extra(run)}"
            for name, run in zip(names, runs, strict=True)
        ]
    return names


def _size(module: Any) -> int:
    """Numbers that are learned."""
    return sum(leaf.size for leaf in jax.tree.leaves(module) if eqx.is_inexact_array(leaf))


def ranked(dataset: Dataset, split: str, scores: Evaluation) -> dict[str, Any]:
    """The sequences with the fewest and with the most nats per step."""
    names, order = names_of(dataset, split), np.argsort(scores.per_sequence, kind="stable")

    def told(places: np.ndarray) -> list[dict[str, Any]]:
        return [
            {
                "name": names[scores.numbers[i]],
                "steps": int(scores.num_steps[i]),
                "nats": float(scores.per_sequence[i]),
            }
            for i in places
        ]

    count = max(1, min(NUM_RANKED, len(order) // 2))
    return {"best": told(order[:count]), "worst": told(order[::-1][:count]), "of": len(order)}


def command(run: Run) -> str:
    """The line that makes such a run again."""
    mine = run.experiment
    # One that was varied has the name of another with something after it.
    names = [name for name in EXPERIMENTS if f"{mine.name}-".startswith(f"{name}-")]
    name = max(names, key=len, default=None)
    if name:
        given = EXPERIMENTS[name]
    else:
        given = table_experiment(mine.data) if isinstance(mine.model, TableSizes) else mine
        given = replace(given, data=Source(mine.data.source))
    words = ["varfilter", "train", name or mine.data.source]
    changed = differences(given, mine)
    for name, (_, value) in changed.items():
        if name == "name" or name.endswith("kind") or name.startswith("published"):
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--{'.no-'.join(flag[2:].rsplit('.', 1))}")
        else:
            values = value if isinstance(value, list) else [value]
            words += [flag, *map(str, values)]
    return shlex.join(words)


def _summary(run: Run, dataset: Dataset) -> dict[str, Any]:
    record, mine = run.record, run.experiment
    lines = run.metrics()
    return {
        "experiment": as_json(mine),
        "command": command(run),
        "folder": str(run.folder),
        "data": {k: record["data"][k] for k in ("name", "sha256", "sequences", "rows")},
        "observation_shape": list(dataset.observation_shape),
        "notes": record["notes"],
        "seed": mine.seed,
        "begun": record["begun"],
        "varfilter": record["varfilter"],
        "revision": record["revision"],
        "jax": record["jax"],
        "device": record["device"],
        "num_devices": record["num_devices"],
        "num_updates": lines[-1]["step"] if lines else 0,
        "num_epochs": lines[-1]["epoch"] if lines else 0,
        "seconds": training_seconds(lines),
        "bound": bound_of(run),
        "units": units_of(dataset),
    }


def training_seconds(lines: Sequence[dict[str, Any]]) -> float:
    """Of all the times a run was gone on with: each begins to count from nought."""
    total, before = 0.0, 0.0
    for line in lines:
        total += line["seconds"] - before if line["seconds"] >= before else line["seconds"]
        before = line["seconds"]
    return total


def bound_of(run: Run) -> str:
    """What was learned and is scored, in words."""
    choice = run.experiment.filter
    if choice.bound == "elbo":
        return "free energy, an upper bound on -log p(x)"
    return f"{choice.bound.upper()} bound with {choice.num_particles} particles, negative"


def units_of(dataset: Dataset) -> str:
    """Whether the nats are of probabilities or of densities."""
    families = dataset.family if isinstance(dataset.family, tuple) else (dataset.family,)
    if all(map(_has_levels, families)):
        return "nats per step, of probabilities"
    if any(map(_has_levels, families)):
        return "nats per step, of probabilities and, in numeric columns, of densities when scaled"
    return "nats per step, of densities of the scaled values (they may be negative)"


def _has_levels(family: Family) -> bool:
    return family.width is not None or issubclass(family.distribution, Bernoulli)


def _published(run: Run) -> dict[str, Any] | None:
    return None if run.experiment.published is None else as_json(run.experiment.published)


def _chosen(scores: Evaluation, count: int, seed: int) -> np.ndarray:
    """Some sequences, by chance; those that are drawn come first."""
    return np.random.default_rng(seed).permutation(scores.numbers)[:count]
