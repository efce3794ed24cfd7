"""What a report says of a run, as numbers; the page and the JSON file are made of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

from varfilter._text import count, in_options
from varfilter.data.dataset import Dataset
from varfilter.experiments.experiment import as_json
from varfilter.filters import AbstractFilter
from varfilter.media import AbstractMedium
from varfilter.media.exhibits import Exhibit
from varfilter.model import AbstractModel
from varfilter.models import widened
from varfilter.plots.figures import InspectedSequence, most_surprising
from varfilter.plots.tables import Fan
from varfilter.report.alarms import SplitAlarms, split_alarms
from varfilter.report.columns import forecast_numbers, middle_fan
from varfilter.report.inspection import calibration, inspect_sequences
from varfilter.report.repetition import brevity, command, epochs_in_words, in_python, typed
from varfilter.runs import Run
from varfilter.runs.applied import applied_filter, apply_run
from varfilter.runs.comparison import USUAL_HORIZON, compare_run, losses
from varfilter.runs.forecasting import with_pool
from varfilter.runs.measures import run_predictor
from varfilter.runs.metrics import judgements, naivety, outdone, shortfall
from varfilter.runs.sampling import sample_run
from varfilter.training.evaluation import Evaluation, HeldOut

NUM_RANKED = 5


@dataclass(frozen=True)
class RunSummary:
    """What is said of one run: `numbers` is plain JSON, `drawn` are the sequences to be shown.

    `alarms` are those of a table, where they could be calibrated, and `fan` is a forecast to be
    drawn beside what came, where the medium has such; `exhibits` are there to be heard and seen.
    """

    label: str
    dataset: Dataset
    medium: AbstractMedium
    numbers: dict[str, Any]
    drawn: list[InspectedSequence]
    alarms: SplitAlarms | None = None
    fan: Fan | None = None
    exhibits: Sequence[Exhibit] = ()


def summarize(
    run: Run,
    label: str,
    *,
    split: str,
    seed: int,
    num_particles: int | None = None,
    horizon: int | None = None,
    num_futures: int | None = None,
) -> RunSummary:
    """Score the split whole by the trained bound, and look closely at some of it.

    What is predicted there, and how surprising it was, is of the filter that `filter_data` has,
    with `num_particles` trajectories; of a table it is compared with its references, one step and
    `horizon` steps ahead. `num_futures` are drawn where the best of several counts.
    """
    model, filter, step, valid = run.trained()
    dataset, medium = run.dataset, run.medium
    scores = score_split(run, model, filter, split=split, seed=seed)
    # By chance; those that are drawn come first.
    chosen = np.random.default_rng(seed).permutation(scores.numbers)
    if medium.inspection.has_worst:
        worst = scores.numbers[np.argmax(scores.per_sequence)]
        chosen = np.array([worst, *chosen[chosen != worst]])
    num_particles = medium.num_particles if num_particles is None else num_particles
    applied = (
        applied_filter(filter, num_particles),
        widened(model, medium.spread_of(num_particles)),
    )
    inspected = inspect_sequences(
        *applied, dataset, jax.random.key(seed),
        chosen[: medium.inspection.num_sequences], split=split, inspection=medium.inspection,
    )  # fmt: skip
    drawn = [medium.inspected(each) for each in inspected[: medium.inspection.num_drawn]]
    alarms = split_alarms(run, dataset, split, seed=seed, num_particles=num_particles)
    reference = medium.reference(dataset, split)
    compared = compare_run(
        run, dataset=dataset, split=split, horizon=horizon, num_particles=num_particles, seed=seed
    )
    predictor = run_predictor(
        run, dataset, split=split, num_particles=num_particles, num_futures=num_futures, seed=seed
    )
    stronger = medium.stronger_reference(dataset, split)
    averages = scores.as_json() | {
        "reference": reference._asdict(),
        "stronger_reference": None if stronger is None else stronger._asdict(),
    }
    measures = medium.measures(dataset, split, predictor, averages)

    def make(num_steps: int, num_sequences: int = 1, *, mean: bool = False) -> list[np.ndarray]:
        made = sample_run(run, num_steps, num_sequences, mean=mean, seed=seed)
        return [each.xs for each in made]

    fan = None
    if medium.has_forecast:
        far = horizon or (compared or {}).get("horizons", [USUAL_HORIZON])[-1]
        pooled = with_pool(run, apply_run(run, seed=seed, num_particles=num_particles), dataset)
        fan = middle_fan(pooled, dataset, split, int(chosen[0]), far, jax.random.key(seed))
    lines = run.metrics()
    num_epochs = run.experiment.schedule.num_epochs
    if compared is None:
        beaten = naivety(scores.nats, reference) or outdone(scores.nats, stronger)
    else:
        first = {name: each["1"] for name, each in compared["nats"].items()}
        beaten = shortfall(first, split, **losses(compared))
    warnings = [brevity(run, lines), *judgements(lines, num_epochs=num_epochs), beaten]
    numbers = {
        "label": label,
        **_facts(run, dataset),
        "num_parameters": {"model": _num_parameters(model), "inference": _num_parameters(filter)},
        "best_step": step,
        "best_valid": valid,
        "split": split,
        "results": {
            **averages,
            "gain_errors": gain_errors(scores),
            "published": _published(run),
        },
        "measures": [measure.as_json() for measure in measures],
        "comparison": compared,
        "forecast": None if fan is None else forecast_numbers(fan),
        "calibration": calibration(dataset, inspected),
        "sequences": ranked(dataset, split, scores),
        "inspected": [{"name": each.name, "num_steps": len(each.xs)} for each in inspected],
        "num_samples": medium.inspection.num_samples,
        "num_particles": num_particles,
        "drawn": [drawn_numbers(each) for each in drawn],
        "alarms": None if alarms is None else alarms.numbers,
        "warnings": [text for text in warnings if text is not None],
        "validation": chosen_by(lines),
        "metrics": lines,
    }
    exhibits = medium.exhibits(dataset, split, predictor, make)
    numbers["exhibits"] = [each.caption for each in exhibits]
    numbers["traits"] = {
        name: dict(traits) for each in exhibits for name, traits in (each.traits or {}).items()
    }
    return RunSummary(label, dataset, medium, numbers, drawn, alarms, fan, exhibits)


def gain_errors(scores: Evaluation) -> list[float] | None:
    """The standard errors over sequences of what each iteration gained since the prior.

    None of a single sequence. The same sequences are at the prior and after it: what differs
    between them is in both, and not in the gain.
    """
    count = len(scores.num_steps)
    if count < 2 or scores.by_iteration.shape[1] < 2:
        return None
    gains = (scores.by_iteration - scores.by_iteration[:, :1]) / scores.num_steps[:, None]
    return (np.std(gains, axis=0, ddof=1) / count**0.5).tolist()


def score_split(
    run: Run, model: AbstractModel, filter: AbstractFilter, *, split: str, seed: int
) -> Evaluation:
    """Score a split of the run's data, whole, in batches that fit in memory."""
    return HeldOut(run.dataset, split=split).evaluate(filter, model, jax.random.key(seed))


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


def ranked(dataset: Dataset, split: str, scores: Evaluation) -> dict[str, Any]:
    """The sequences with the fewest and with the most nats per step."""
    names = dataset.sequence_names(split)
    order = np.argsort(scores.per_sequence, kind="stable")

    def listed(places: np.ndarray) -> list[dict[str, Any]]:
        return [
            {
                "name": names[scores.numbers[i]],
                "steps": int(scores.num_steps[i]),
                "nats": float(scores.per_sequence[i]),
            }
            for i in places
        ]

    most = max(1, min(NUM_RANKED, len(order) // 2))
    return {"best": listed(order[:most]), "worst": listed(order[::-1][:most]), "of": len(order)}


def drawn_numbers(sequence: InspectedSequence) -> dict[str, Any]:
    """Say which steps of a sequence a figure shows, and which are the most surprising."""
    return {
        "name": sequence.name,
        "first_step": sequence.first,
        "last_step": sequence.first + len(sequence.xs) - 1,
        "num_steps": sequence.num_steps,
        "most_surprising": most_surprising(sequence),
    }


def training_seconds(lines: Sequence[dict[str, Any]]) -> float:
    """The seconds that training took in all; a resumed run counts from 0 again in its metrics."""
    total, before = 0.0, 0.0
    for line in lines:
        total += line["seconds"] - before if line["seconds"] >= before else line["seconds"]
        before = line["seconds"]
    return total


def _facts(run: Run, dataset: Dataset) -> dict[str, Any]:
    record, mine = run.record, run.experiment
    lines = run.metrics()
    return {
        "experiment": as_json(mine),
        "command": command(run),
        "in_python": in_python(run),
        "typed": typed(run.folder),
        "epochs": epochs_in_words(run, lines),
        "num_iterations": getattr(mine.filter.inference, "num_iterations", None),
        "folder": str(run.folder),
        "data": {k: record["data"][k] for k in ("name", "sha256", "sequences", "rows")},
        "observation_shape": list(dataset.observation_shape),
        "notes": [in_options(note, mine.data.flags()) for note in record["notes"]],
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
        "bound": _bound_in_words(run),
        "units": _units_in_words(dataset),
    }


def chosen_by(lines: Sequence[dict[str, Any]]) -> str:
    """Say on how much of the validation part the best was chosen."""
    if not lines:
        return "not validated"
    valid = lines[-1]["valid"]
    scored, of = valid.get("num_sequences"), valid.get("of")
    # Before there were validations of a part, nobody counted how many there are in all.
    if of is None or scored == of:
        return f"all sequences of the validation part, {count(len(lines), 'time')}"
    full = [line["full"] for line in lines if "full" in line]
    text = (
        f"{scored:,} of {of:,} sequences, {count(len(lines), 'time')}; the best was chosen by these"
    )
    if not full:
        return f"{text}, since all of them would have taken more than a fifth of the time"
    return (
        f"{text}, and has {full[-1]['nats']:.4f} nats per step on all (step {full[-1]['step']:,})"
    )


def _num_parameters(module: Any) -> int:
    """How many numbers of a module are learned."""
    return sum(leaf.size for leaf in jax.tree.leaves(module) if eqx.is_inexact_array(leaf))


def _bound_in_words(run: Run) -> str:
    """What was learned and is scored."""
    choice = run.experiment.filter
    if choice.bound == "elbo":
        return "free energy, an upper bound on -log p(x)"
    return f"{choice.bound.upper()} bound with {count(choice.num_particles, 'particle')}, negative"


def _units_in_words(dataset: Dataset) -> str:
    """Whether the nats are of probabilities or of densities."""
    have_levels = [family.has_levels for family in dataset.families]
    if all(have_levels):
        return "nats per step, of probabilities"
    if any(have_levels):
        return "nats per step, of probabilities and, in numeric columns, of densities when scaled"
    return "nats per step, of densities of the scaled values (they may be negative)"


def _published(run: Run) -> dict[str, Any] | None:
    return None if run.experiment.published is None else as_json(run.experiment.published)
