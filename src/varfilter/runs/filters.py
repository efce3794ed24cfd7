"""The filter that a run applies: the trained inference, with many trajectories."""

from varfilter.filters import (
    AbstractFilter,
    ParticleFilter,
    VariationalFilter,
    of_each_member,
    share_of_member,
)
from varfilter.inference import AbstractInference, Iterative


def applied_filter(
    trained: AbstractFilter, num_particles: int, num_iterations: int | None = None
) -> AbstractFilter:
    """The filter with the inference of `trained`, whatever it was trained with, for new data.

    One sampled past is what AVF learns from, and as a belief it is overconfident: it holds one
    guess of all that was not observed for a fact. So `num_particles` weighted trajectories are
    carried, each proposed by the trained inference, and resampled where fewer than half of them
    count; 1 gives the paper's filter. The members of an ensemble share them. `num_iterations` that
    are None are those of training.
    """
    own = share_of_member(trained, num_particles)
    inference = trained_inference(trained, num_iterations)

    def applied(_: AbstractFilter) -> AbstractFilter:
        if own == 1:
            return VariationalFilter(inference)
        return ParticleFilter(inference, own, resample_below=0.5)

    return of_each_member(trained, applied)


def trained_inference(filter: AbstractFilter, num_iterations: int | None) -> AbstractInference:
    """The inference that was trained, of an ensemble those of its members, with so many updates."""
    trained = getattr(filter, "members", filter)
    assert isinstance(trained, VariationalFilter | ParticleFilter)
    inference = trained.inference
    if num_iterations is None:
        return inference
    if not isinstance(inference, Iterative):
        raise ValueError(
            f"`num_iterations` is {num_iterations}, but this run infers with"
            f" `{type(inference).__name__}`, whose iterations are not to be chosen after"
            " training. Leave it out, or evaluate a run of AVF."
        )
    return inference.with_num_iterations(num_iterations)
