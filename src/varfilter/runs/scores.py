"""Scores of a trained run on whole held-out sequences, beside the paper's where it has one."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from varfilter._arguments import require_positive
from varfilter.data.dataset import Dataset, Family
from varfilter.experiments.settings import Bound, filter_with
from varfilter.filters import ParticleFilter, of_each_member, share_of_member
from varfilter.media.reference import Reference
from varfilter.models import widened
from varfilter.runs.applied import trained_inference
from varfilter.runs.measures import NUM_FUTURES
from varfilter.runs.metrics import judgements, outdone, reference_of, verdict
from varfilter.runs.run import Run
from varfilter.training.evaluation import Evaluation, HeldOut


def score_run(
    run: Run,
    *,
    split: str = "test",
    bound: Bound | None = None,
    num_particles: int | None = None,
    num_iterations: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """The best checkpoint on every sequence of `split`, whole, as plain JSON.

    What is None is as in training. `nats` has equal weight per sequence, `nats_by_step` per
    step; `nats_as_published` divides by one step more than was scored, as the released code.
    Of quantised data these are of probabilities; `density` has the same of densities,
    F_density = F_probability + n log(width) for n elements in the model's units.
    """
    choice = run.experiment.filter
    bound = choice.bound if bound is None else bound
    if num_particles is not None:
        require_positive("num_particles", num_particles)
        if bound == "elbo":
            raise ValueError(
                f"`num_particles` is {num_particles}, but the bound is elbo, which has none. Give"
                " `--bound iwae` or `--bound fivo` with it; `score_particles` has the bound of"
                " particles beside it."
            )
    trained = run.trained()
    inference = trained_inference(trained.filter, num_iterations)
    particles = choice.num_particles if num_particles is None else num_particles
    filter = of_each_member(
        trained.filter,
        lambda _: filter_with(inference, bound, particles, num_samples=choice.num_samples),
    )
    dataset = run.dataset
    held_out = HeldOut(dataset, split=split, batch_size=batch_size)
    found = held_out.evaluate(filter, trained.model, jax.random.key(seed))
    stronger = run.medium.stronger_reference(dataset, split)
    return {
        "experiment": run.experiment.name,
        "data": dataset.name,
        "data_sha256": run.record["data"]["sha256"],
        "split": split,
        "step": trained.step,
        "seed": seed,
        "bound": bound,
        "num_particles": None if bound == "elbo" else particles,
        "num_iterations": getattr(inference, "num_iterations", None),
        "units": run.medium.score_units,
        "prediction_units": "the data's own: root mean square error of the one-step prediction",
        **found.as_json(),
        "density": _in_density_units(found, dataset),
        "reference": run.medium.reference(dataset, split)._asdict(),
        "stronger_reference": None if stronger is None else stronger._asdict(),
        "published": _published(run),
    }


def outdone_by(scores: dict[str, Any]) -> str | None:
    """The sentence that scores are no better than the stronger reference; None where they are."""
    stronger = scores.get("stronger_reference")
    return outdone(scores["nats"], stronger and Reference(**stronger))


def judged_run(run: Run, dataset: Dataset) -> list[str]:
    """What is bad about a run that has ended, a sentence each; `dataset` is its own."""
    num_epochs = run.experiment.schedule.num_epochs
    # Who was compared with better references needs no other.
    reference = None if "comparison" in run.record else reference_of(run, dataset)
    found = judgements(run.metrics(), reference, num_epochs=num_epochs)
    said = verdict(run)
    return found if said is None or said in found else [*found, said]


def score_particles(
    run: Run,
    *,
    split: str = "test",
    num_particles: int | None = None,
    num_iterations: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Score a split as `score_run` does, by the filter that `filter_data` applies, as plain JSON.

    Its bound, the log of the mean weight of `num_particles` trajectories that are resampled where
    fewer than half of them count (FIVO; Maddison et al. 2017), is on average below log p(x), and
    the nearer to it the more there are. It takes up to `num_particles` times as long as
    `score_run`; what lies in memory at once does not grow beyond the larger of the two numbers.
    """
    trained = run.trained()
    count = run.medium.num_particles if num_particles is None else num_particles
    inference = trained_inference(trained.filter, num_iterations)
    own = share_of_member(trained.filter, require_positive("num_particles", count))
    filter = of_each_member(
        trained.filter, lambda _: ParticleFilter(inference, own, resample_below=0.5)
    )
    # The trajectories of a few sequences make a batch as large as many sequences do.
    size = None if batch_size is None else max(1, batch_size // count)
    held_out = HeldOut(run.dataset, split=split, batch_size=size)
    model = widened(trained.model, run.medium.spread_of(count))
    found = held_out.evaluate(filter, model, jax.random.key(seed))
    scores = found.as_json()
    del scores["nats_by_iteration"]  # of the free energy alone
    return {
        "bound": "fivo",
        "num_particles": count,
        "units": run.medium.score_units,
        **scores,
        "density": _in_density_units(found, run.dataset),
    }


def name_of(
    scores: dict[str, Any],
    run: Run,
    num_particles: int | None = None,
    horizon: int | None = None,
    num_futures: int | None = None,
) -> str:
    """The name of the file that keeps these scores: what differs from training is in it.

    `num_particles` is of the particle bound beside the free energy, if another number than the
    medium's was asked for; `horizon` that of the comparison by column, and `num_futures` those of
    which the best counts.
    """
    choice = run.experiment.filter
    parts = ["evaluation", scores["split"]]
    if scores["num_particles"] is not None:
        given = (scores["bound"], scores["num_particles"])
        if given != (choice.bound, choice.num_particles):
            parts += map(str, given)
    elif scores["bound"] != choice.bound:
        parts.append(scores["bound"])
    if scores["bound"] == "elbo" and num_particles not in (None, run.medium.num_particles):
        parts.append(f"particles-{num_particles}")
    if scores["num_iterations"] != getattr(choice.inference, "num_iterations", None):
        parts.append(f"iterations-{scores['num_iterations']}")
    if horizon is not None:
        parts.append(f"horizon-{horizon}")
    if num_futures not in (None, NUM_FUTURES):
        parts.append(f"futures-{num_futures}")
    if scores["seed"]:
        parts.append(f"seed-{scores['seed']}")
    return "-".join(parts) + ".json"


def _in_density_units(found: Evaluation, dataset: Dataset) -> dict[str, Any] | None:
    """The scores in units of densities; None where the data are not quantised."""
    family = dataset.family
    if not isinstance(family, Family) or family.width is None:
        return None
    # log P(level) = log p(x) + log(width) for levels that are narrow.
    shift = found.num_observed * math.log(family.width)
    by_iteration = found.by_iteration + shift[:, np.newaxis]
    moved = replace(found, free_energy=found.free_energy + shift, by_iteration=by_iteration)
    scores = moved.as_json()
    names = ("nats", "nats_by_step", "nats_as_published", "nats_by_iteration")
    return {"width": family.width} | {name: scores[name] for name in names}


def _published(run: Run) -> dict[str, Any] | None:
    published = run.experiment.published
    if published is None:
        return None
    return {
        "table": published.table,
        "num_iterations": published.num_iterations,
        # Each beside the average of ours that it is.
        "nats_as_published": published.nats,
        "nats": published.corrected,
    }
