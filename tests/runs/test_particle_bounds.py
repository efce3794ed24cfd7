"""Runs that learn by a particle bound: every medium, with AVF's proposals and the baselines'."""

import dataclasses

import numpy as np
import pytest

from refusals import refuses
from tiny_runs import MEDIA, tiny
from varfilter.experiments import AVF, Baseline, FilterChoice
from varfilter.experiments.experiment import as_json, from_json
from varfilter.filters import ParticleFilter, ScoredSystematic, Systematic
from varfilter.learning import EndToEnd
from varfilter.runs import Run, train_run
from varfilter.runs.training import Stopped, Validated
from varfilter.training.evaluation import HeldOut

INFERENCES = {
    "avf": AVF(hidden_size=4, num_layers=1),
    "baseline": Baseline(hidden_size=4, num_layers=1),
}
RESAMPLINGS = {"fixed-ancestors": Systematic, "scored-ancestors": ScoredSystematic}
CASES = [
    ("table", "avf", "fivo", "scored-ancestors"),
    ("table", "avf", "iwae", "fixed-ancestors"),
    ("table", "baseline", "fivo", "scored-ancestors"),
    *(
        (medium, inference, "fivo", gradient)
        for medium in MEDIA
        if medium != "table"
        for inference, gradient in (("avf", "scored-ancestors"), ("baseline", "fixed-ancestors"))
    ),
]


@pytest.mark.parametrize("gradient", ["fixed-ancestors", "scored-ancestors"])
def test_settings_build_the_bound_and_the_gradient_that_they_name(gradient, tmp_path):
    experiment, dataset = tiny("table", tmp_path)
    for bound, resample_below in (("iwae", 0.0), ("fivo", 0.5)):
        choice = FilterChoice(INFERENCES["avf"], bound, 3, gradient)
        built = dataclasses.replace(experiment, filter=choice).build(dataset)
        assert isinstance(built.learner, EndToEnd)
        assert isinstance(built.filter, ParticleFilter)
        assert (built.filter.num_particles, built.filter.resample_below) == (3, resample_below)
        assert isinstance(built.filter.resampling, RESAMPLINGS[gradient])


@pytest.mark.slow
@pytest.mark.parametrize(("medium", "inference", "bound", "gradient"), CASES)
def test_every_medium_learns_by_a_particle_bound(medium, inference, bound, gradient, tmp_path):
    experiment, dataset = tiny(medium, tmp_path)
    choice = FilterChoice(INFERENCES[inference], bound, 3, gradient)
    schedule = dataclasses.replace(experiment.schedule, num_epochs=2)
    experiment = dataclasses.replace(experiment, filter=choice, schedule=schedule)
    run = Run.begin(tmp_path / "run", experiment, dataset)
    events = list(train_run(run, dataset))
    assert isinstance(events[-1], Stopped)
    lines = [event.line for event in events if isinstance(event, Validated)]
    assert [line["num_skipped"] for line in lines] == [0, 0]
    # Both the model and the proposal have a gradient, and the model has moved.
    assert all(line["train"]["theta_gradient_norm"] > 0 for line in lines)
    assert all(line["train"]["phi_gradient_norm"] > 0 for line in lines)

    found = Run.load(run.folder).trained()
    assert isinstance(found.filter, ParticleFilter)
    assert isinstance(found.filter.resampling, RESAMPLINGS[gradient])
    # What is kept is what was validated, with the key of validation.
    held_out = HeldOut(dataset, split="valid")
    scores = held_out.evaluate(found.filter, found.model, experiment.keys().valid)
    best = min(line["valid"]["nats"] for line in lines)
    np.testing.assert_allclose(scores.nats, best, rtol=1e-5)  # a sum of float32


def test_the_gradient_is_on_record_and_old_records_have_the_one_there_was():
    experiment, _ = tiny("music", None)
    choice = FilterChoice(AVF(), "fivo", 4, "scored-ancestors")
    recorded = as_json(dataclasses.replace(experiment, filter=choice))
    assert from_json(recorded, "music").filter == choice
    del recorded["filter"]["gradient"]
    assert from_json(recorded, "music").filter.gradient == "fixed-ancestors"


@pytest.mark.usefixtures("as_users_run_it")
def test_another_gradient_is_refused():
    refuses(
        lambda: FilterChoice(AVF(), "fivo", 4, "true"),
        ValueError, "`filter.gradient`", "fixed-ancestors, scored-ancestors", "'true'",
    )  # fmt: skip
