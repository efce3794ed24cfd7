"""A run of several members: trained, resumed, scored and applied as a run of one is."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import tiny_runs
from varfilter.filters import EnsembleFilter
from varfilter.models import Ensemble
from varfilter.runs import Run, apply_run, filter_data, forecast_data, sample_run, train_run
from varfilter.runs.scores import score_particles, score_run

FILTERED = {"num_particles": 5, "num_samples": 8, "levels": (0.05, 0.95), "latents": True}


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    experiment, dataset = tiny_runs.tiny("table", folder)
    schedule = replace(experiment.schedule, num_epochs=2)
    experiment = replace(experiment, num_members=2, schedule=schedule)
    run = Run.begin(folder / "run", experiment, dataset)
    list(train_run(run, dataset))
    return run, dataset


def test_it_is_loaded_as_two_models_that_differ(members):
    trained = Run.load(members[0].folder).trained()
    assert isinstance(trained.model, Ensemble)
    assert isinstance(trained.filter, EnsembleFilter)
    differ = [
        not np.array_equal(leaf[0], leaf[1])
        for leaf in jax.tree.leaves(trained.model.members)
        if isinstance(leaf, jax.Array)
    ]
    assert any(differ)


def test_left_in_the_middle_it_ends_with_the_same_bits(members, tmp_path):
    run, dataset = members
    other = Run.begin(tmp_path / "run", run.experiment, dataset)
    list(train_run(other, dataset, max_updates=1))
    list(train_run(other, dataset))
    for one, same in zip(
        jax.tree.leaves(run.trained().model), jax.tree.leaves(other.trained().model), strict=True
    ):
        np.testing.assert_array_equal(one, same)


def test_each_member_goes_through_the_data_as_a_single_one_would(members):
    run, dataset = members
    alone = replace(run.experiment, num_members=1)
    windows = run.experiment.windows(dataset)
    assert windows.batch_size == 2 * alone.schedule.batch_size
    assert run.experiment.updates_per_epoch(windows) == alone.updates_per_epoch(
        alone.windows(dataset)
    )


def test_members_share_the_trajectories_and_have_latents_of_their_own(members):
    run, _ = members
    applied = apply_run(run, num_particles=5)
    assert applied.filter.members.num_particles == 3
    rows = list(filter_data(run, run.experiment.data.source, **FILTERED))
    assert len(rows) == 20 * 40
    # The first step of each sequence is conditioned on.
    by_step = np.reshape([row["surprise"] for row in rows], (20, 40))
    assert np.isfinite(by_step[:, 1:]).all()
    # Three latents of each of two members.
    assert {f"z{i}_mean" for i in range(6)} <= set(rows[1])
    assert "z6_mean" not in rows[1]
    # The value that nobody expects.
    assert (by_step[:, 1:].argmax(1) == 29).mean() > 0.8


def test_the_prior_is_as_wide_as_one_asks(members):
    run, _ = members
    assert apply_run(run).model.members.factor == run.medium.spread == 1.1
    assert apply_run(run, spread=1.5).model.members.factor == 1.5
    # The paper's filter has what was learned.
    for options in ({"num_particles": 1}, {"spread": 1.0}):
        assert jax.tree.structure(apply_run(run, **options).model) == jax.tree.structure(
            run.trained().model
        )
    with pytest.raises(ValueError, match="`spread` must be positive"):
        apply_run(run, spread=0.0)


def test_forecasts_samples_scores_and_pictures(members):
    run, _ = members
    ahead = list(forecast_data(run, run.experiment.data.source, 3, num_samples=16))
    assert len(ahead) == 20 * 3
    samples = np.stack([sample.xs for sample in sample_run(run, 4, 3)])
    assert samples.shape == (3, 4, 2)
    assert np.isfinite(samples).all()
    found = score_run(run)
    assert len(found["nats_by_iteration"]) == 2
    assert found["nats_by_iteration"][-1] == pytest.approx(found["nats"], rel=1e-5)
    assert found["num_iterations"] == 1
    assert np.isfinite(score_particles(run, num_particles=4)["nats"])
