"""The metrics of a run, a file of JSON lines, each with its checksum; and what is bad by them.

A judgement is a plain function of the metrics: a sentence, or None. They are said in the log, at
the end of training, in reports, and where a run is applied to new data; they stop nothing.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from varfilter._files import append, written
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.ragged import Ragged
from varfilter.media.reference import Reference
from varfilter.runs.folder import is_sealed, sealed, unsealed
from varfilter.runs.validation import subset

Line = dict[str, Any]
# In a comparison: the model's own predictions, and the pool of these and its references.
MODEL, POOLED = "model", "pooled"
# Of all that was gained by the best: validation that has lost more than this again has risen.
RISEN = 0.05
# A validation or two after the best may be chance.
FEWEST_AFTER = 2
# Nats of KL per step below which the latents carry nothing.
COLLAPSED = 0.05
# Columns that are named of those in which a model is worse than its references.
MOST_NAMED = 3
# New data may lie so far beyond the training data, as a part of their span.
BEYOND = 0.1
# Rows that are in memory at once while a large set is gone through.
BLOCK = 1 << 16
Lines = Sequence[dict[str, Any]]


class Metrics(NamedTuple):
    """The lines of a file that are whole, in order, and what is wrong with the others.

    `damaged` has the numbers of the lines that are not whole (from 1) and the reasons; a last
    line that was cut short, as a crash leaves it, is neither here nor there.
    """

    lines: list[Line]
    damaged: dict[int, str]
    num_lines: int


def read_metrics(path: Path, *, need_checksums: bool) -> list[Line]:
    """The lines of the file, in order, or an error if one of them is damaged.

    A last line that was cut short is left out. `need_checksums` is False for files that version
    0.1.0 began, whose lines had none.
    """
    found = salvage_metrics(path, need_checksums=need_checksums)
    if found.damaged:
        number, reason = next(iter(found.damaged.items()))
        raise ValueError(
            f"{str(path)!r} is damaged in line {number} of {found.num_lines} ({reason}), so nothing"
            " was changed. To keep the lines that are whole:"
            f" `varfilter repair {shlex.quote(str(path.parent))}`."
        )
    return found.lines


def salvage_metrics(path: Path, *, need_checksums: bool) -> Metrics:
    """All that is whole in the file, and what is not."""
    if not path.exists():
        return Metrics([], {}, 0)
    *texts, rest = path.read_bytes().split(b"\n")
    lines: list[Line] = []
    damaged: dict[int, str] = {}
    for number, text in enumerate([*texts, rest] if rest else texts, 1):
        try:
            line = _read_line(text, need_checksums=need_checksums)
            if lines and need_checksums and line["step"] <= lines[-1]["step"]:
                raise ValueError(f"step {line['step']} comes after step {lines[-1]['step']}")
        except ValueError as error:
            # Without its end it was cut short; with one, and more behind it, it was changed.
            if number <= len(texts) or b'"checksum": "' in text[:-66]:
                damaged[number] = str(error)
            continue
        lines.append(line)
    return Metrics(lines, damaged, len(texts) + bool(rest))


def append_line(path: Path, line: Line) -> None:
    """Add a line, which is on the disk when this returns."""
    append(path, sealed(line) + b"\n")


def write_lines(path: Path, lines: list[Line]) -> None:
    """Put these lines in the place of all that the file holds."""
    content = b"".join(sealed(line) + b"\n" for line in lines)
    if not path.exists() or path.read_bytes() != content:
        with written(path) as put:
            put(content)


def rise(lines: Lines) -> str | None:
    """Validation that has got worse since its best: learnt by heart, or gone astray."""
    scores = _scores(lines)
    if len(scores) < 1 + FEWEST_AFTER:
        return None
    steps, nats = zip(*scores, strict=True)
    best = int(np.argmin(nats))
    after = nats[best + 1 :]
    # The last ones, by their mean: one bad validation is no rise.
    last = float(np.mean(after[-FEWEST_AFTER:])) if len(after) >= FEWEST_AFTER else nats[best]
    gained = max(nats[0] - nats[best], 0.0)
    if last - nats[best] <= RISEN * gained:
        return None
    return (
        f"Validation has risen since its best: {nats[best]:.4f} nats per step at step"
        f" {steps[best]:,}, {nats[-1]:.4f} at the last. The best is kept; what would help is more"
        " data, fewer units or weight decay, and not more updates."
    )


def unfinished(lines: Lines, num_epochs: int | None = None) -> str | None:
    """The best is the last step: it was still learning, at the end of its epochs or before."""
    scores = _scores(lines)
    if len(scores) < 2 or min(scores, key=lambda each: each[1]) != scores[-1]:
        return None
    longer = "Train longer, with a greater --schedule.num-epochs."
    if num_epochs is not None and (epoch := lines[-1]["epoch"]) < num_epochs:
        longer = f"Train longer: that was epoch {epoch:.4g} of {num_epochs:,}."
    return f"The best is the last step, {scores[-1][0]:,}: it was still learning. {longer}"


def collapse(lines: Lines) -> str | None:
    """A KL of nothing at its full weight: q is the prior, and the latents are not in use."""
    if not lines or lines[-1].get("kl_weight", 1.0) < 1.0:
        return None
    kl = lines[-1]["train"].get("kl")
    if kl is None or not kl < COLLAPSED:
        return None
    return (
        f"The KL has collapsed: the latents carry {kl:.2g} nats per step, and all is predicted"
        " without them. Fewer units in the recurrence or the decoder, or"
        " --schedule.annealing-epochs, leave them more to do."
    )


def naivety(nats: float, reference: Any) -> str | None:
    """A score that is no better than the naive predictor's of the medium."""
    if nats < reference.nats:
        return None
    return (
        f"The model is no better than a naive predictor: {nats:.4f} nats per step, where"
        f" {reference.nats:.4f} take no learning ({reference.what})."
    )


def outdone(nats: float, reference: Any) -> str | None:
    """A score that is no better than the stronger reference of the medium, where it has one."""
    if reference is None or nats < reference.nats:
        return None
    return (
        f"The model is no better than {reference.what}: {nats:.4f} nats per step, where that has"
        f" {reference.nats:.4f}."
    )


def judgements(lines: Lines, reference: Any = None, *, num_epochs: int | None = None) -> list[str]:
    """All that is bad about a run that has ended, by its metrics.

    `num_epochs` are those of its schedule, and `reference` is the naive predictor's score on the
    sequences that were validated (`validated_reference`).
    """
    found = [rise(lines), unfinished(lines, num_epochs), collapse(lines)]
    if reference is not None and lines:
        found.append(naivety(_best_of(lines), reference))
    return [text for text in found if text is not None]


def validated_reference(
    medium: Any, dataset: Dataset, lines: Lines, numbers: Any, *, is_stronger: bool = False
) -> Any:
    """The naive reference, or the stronger one, on the sequences by which the best was chosen.

    `numbers` are those that were scored between the full validations; where the best was scored on
    all, all count.
    """
    score = medium.stronger_reference if is_stronger else medium.reference
    if not lines or _full_of(lines) is not None or not _is_of_part(lines[-1]):
        return score(dataset, "valid")
    return score(only(dataset, "valid", numbers), "valid")


def reference_of(run: Any, dataset: Dataset, *, is_stronger: bool = False) -> Any:
    """The naive (or stronger) reference beside a run's validations; `dataset` is its own."""
    known = run.record.get("validation") or {}
    steps = dataset.valid.lengths // dataset.rows_per_step
    numbers = subset(steps)[: known.get("num_sequences") or len(steps)]
    return validated_reference(run.medium, dataset, run.metrics(), numbers, is_stronger=is_stronger)


def remember_reference(run: Any, dataset: Dataset) -> None:
    """Put on record what takes no learning, for those who use the run without its data."""
    stronger = reference_of(run, dataset, is_stronger=True)
    run.remember(
        reference=reference_of(run, dataset)._asdict(),
        **({} if stronger is None else {"stronger_reference": stronger._asdict()}),
    )


def verdict(run: Any) -> str | None:
    """Return a warning if the run's record shows it no better than its best reference, else None.

    Records of before there was any say nothing.
    """
    compared = run.record.get("comparison")
    if compared:
        lost = run.record.get("losses") or {}  # records of before there were any have none
        return shortfall(compared, ahead=lost.get("ahead", {}), columns=lost.get("columns", {}))
    lines = run.metrics()
    for name, judge in (("reference", naivety), ("stronger_reference", outdone)):
        known = run.record.get(name)
        if known and lines and (said := judge(_best_of(lines), Reference(**known))) is not None:
            return said
    return None


def shortfall(
    nats: Mapping[str, float],
    split: str = "valid",
    *,
    ahead: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    columns: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> str | None:
    """A model that is no better than another predictor, as a whole or in some of its columns.

    `nats` are of each, on a held-out split, one step ahead, and `ahead` those further ahead, by the
    number of steps. `columns` are those in which it is worse, the worst first, as
    `varfilter.runs.comparison.losses` has them.
    """
    part = f"{'validation' if split == 'valid' else split} part"
    said = []
    for steps, each in {"1": nats, **ahead}.items():
        name = best_reference(each)
        if each[MODEL] >= each[name]:
            where = "The model is" if steps == "1" else f"{steps} steps ahead the model is"
            said.append(
                f"{where} no better than the {name}: {each[MODEL]:.4f} nats per step of the {part},"
                f" where that has {each[name]:.4f}."
            )
    if columns:
        parts = [_loss(name, each) for name, each in columns.items()]
        rest = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
        where = "" if said else f", on the {part}"
        what = (
            "Worse than the best reference"
            if said
            else "The model is worse than the best reference"
        )
        said.append(f"{what} in {'; '.join(parts[:MOST_NAMED])}{rest}{where}.")
    return " ".join(said) or None


def _loss(name: str, lost: Mapping[str, Any]) -> str:
    far = "" if lost["steps"] == 1 else f", {lost['steps']} steps ahead"
    own, other = lost["model"], lost["than"]
    return f"{name!r} ({lost['score']} {own:.3g}, {lost['reference']} {other:.3g}{far})"


def best_reference(nats: Mapping[str, float]) -> str:
    """Which of the references beside a model has the best score."""
    others = [name for name in nats if name not in (MODEL, POOLED)]
    return min(others, key=lambda name: nats[name])


def only(dataset: Dataset, split: str, numbers: Sequence[int] | np.ndarray) -> Dataset:
    """The data set with these sequences alone in one of its splits."""
    parts = {name: dataset.split(name) for name in SPLITS}
    parts[split] = Ragged.of([parts[split][i] for i in sorted(numbers)], like=parts[split].values)
    return replace(dataset, **parts, names={}, times={}, input_names=(), inputs={})


# New data.


@dataclass(frozen=True)
class TrainingRange:
    """The lowest and the highest value of the training data, by column or of all, in their units.

    `names` are of the columns; empty where there is one range for all.
    """

    low: np.ndarray
    high: np.ndarray
    names: tuple[str, ...] = ()

    @staticmethod
    def of_record(record: dict[str, Any]) -> "TrainingRange | None":
        """The range that a run has on record; records of before there was one have none."""
        if record.get("low") is None:
            return None
        low, high = (
            np.atleast_1d(np.asarray(record[name], np.float64)) for name in ("low", "high")
        )
        # A column that is told by its changes has a range of these, and none of its own.
        moves = [(f.get("transform") or {}).get("change_scale") for f in record.get("families", ())]
        if record["columns"] and any(moves):
            low = np.where([bool(move) for move in moves], np.nan, low)
        return TrainingRange(low, high, tuple(record["columns"]))

    def outside(self, rows: np.ndarray) -> dict[str, str]:
        """A sentence for each column of `rows` that lies outside, by its name ("" for all)."""
        rows = np.asarray(rows, np.float64)
        rows = rows if self.names else rows.reshape(-1, 1)
        margin = BEYOND * (self.high - self.low)
        found: dict[str, str] = {}
        for i, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            seen = rows[:, i][np.isfinite(rows[:, i])]
            if not seen.size or not np.isfinite(low):
                continue
            lowest, highest = low - margin[i], high + margin[i]
            far = [v for v in np.unique([seen.min(), seen.max()]) if not lowest <= v <= highest]
            if far:
                name = self.names[i] if self.names else ""
                what = f"Column {name!r}" if name else "The data"
                found[name] = (
                    f"{what} has {' and '.join(f'{v:g}' for v in far)}, outside of the training"
                    f" data ({low:g} to {high:g}): what is predicted there is a guess."
                )
        return found


def training_range(dataset: Dataset) -> dict[str, Any]:
    """The lowest and highest training values as plain JSON; None where all are 0 or 1.

    By column where they have names, since others share a scale.
    """
    values = dataset.train.values
    if dataset.is_binary or not len(values):
        return {"low": None, "high": None}
    axis = 0 if dataset.columns else None
    low, high = np.inf, -np.inf
    for begin in range(0, len(values), BLOCK):
        block = np.asarray(values[begin : begin + BLOCK], np.float64)
        low = np.fmin(low, np.fmin.reduce(block, axis=axis))
        high = np.fmax(high, np.fmax.reduce(block, axis=axis))
    return {"low": _json(low), "high": _json(high)}


def _read_line(text: bytes, *, need_checksums: bool) -> Line:
    if need_checksums or is_sealed(text):
        line = unsealed(text)
    else:
        try:
            line = json.loads(text)
        except ValueError:
            raise ValueError("it is no JSON") from None
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        raise ValueError("it does not say at which step it was written")
    return line


def _json(numbers: Any) -> Any:
    """A column that was never observed has no range: null, which JSON has for it."""
    listed = np.asarray(numbers).tolist()
    if isinstance(listed, list):
        return [value if np.isfinite(value) else None for value in listed]
    return listed if np.isfinite(listed) else None


def _scores(lines: Lines) -> list[tuple[int, float]]:
    """(step, nats) of the validations that are of as many sequences as the last."""
    if not lines:
        return []
    count = lines[-1]["valid"].get("num_sequences")
    return [
        (line["step"], line["valid"]["nats"])
        for line in lines
        if line["valid"].get("num_sequences") == count
    ]


def _best_of(lines: Lines) -> float:
    """The score of the best: on all sequences, where it was scored so."""
    full = _full_of(lines)
    return lines[-1]["best"] if full is None else full


def _full_of(lines: Lines) -> float | None:
    """The score on all sequences of the best of the last line, if it has one."""
    scores = _scores(lines)
    step = min(scores, key=lambda each: each[1])[0] if scores else None
    found = [line["full"] for line in lines if "full" in line and line["full"]["step"] == step]
    return found[-1]["nats"] if found else None


def _is_of_part(line: dict[str, Any]) -> bool:
    count, of = line["valid"].get("num_sequences"), line["valid"].get("of")
    return of is not None and count != of
