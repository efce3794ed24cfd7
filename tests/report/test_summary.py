"""What a report says of a run: numbers of an evaluation, and the command that makes it again."""

import dataclasses

import jax
import numpy as np
import pytest

from varfilter.experiments import AVF, FilterChoice, experiment_named
from varfilter.report.inspection import NOMINAL
from varfilter.report.repetition import command
from varfilter.report.summary import labels, training_seconds
from varfilter.runs import Run
from varfilter.training import evaluate


def test_the_numbers_are_those_of_an_evaluation(reported):
    run, _, numbers = reported("table")
    model, filter, step, valid = run.trained()
    scores = evaluate(filter, model, run.dataset, jax.random.key(0), batch_size=3)
    (found,) = numbers["runs"]
    results = found["results"]
    # Programs of another shape round otherwise.
    assert results["nats"] == pytest.approx(scores.nats, rel=1e-5)
    assert results["nats_as_published"] == pytest.approx(results["nats"] * 39 / 40, rel=1e-6)
    assert results["standard_error"] == pytest.approx(scores.standard_error, rel=1e-4)
    assert (found["best_step"], found["best_valid"]) == (step, valid)
    assert found["sequences"]["of"] == len(run.dataset.test) > 1
    best, worst = (found["sequences"][which][0]["nats"] for which in ("best", "worst"))
    assert best == pytest.approx(scores.per_sequence.min(), rel=1e-5)
    assert worst == pytest.approx(scores.per_sequence.max(), rel=1e-5)
    assert found["metrics"] == run.metrics()
    # At the prior, and after the one iteration.
    assert len(results["nats_by_iteration"]) == 2
    assert results["nats_by_iteration"][-1] == pytest.approx(results["nats"], rel=1e-6)
    # The value that nobody expects is the most surprising, in every sequence.
    for drawn in found["drawn"]:
        peak = max(drawn["most_surprising"], key=lambda each: each["surprise"])
        assert peak["step"] == 30


@pytest.mark.parametrize("medium", ["table", pytest.param("music", marks=pytest.mark.slow)])
def test_the_naive_reference_is_that_of_the_medium(reported, medium):
    run, page, numbers = reported(medium)
    reference = numbers["runs"][0]["results"]["reference"]
    what, nats = run.medium.reference(run.dataset, "test")
    assert reference == {"what": what, "nats": pytest.approx(nats)}
    text = page.read_text(encoding="utf-8")
    assert f"The naive reference predicts {what}." in text
    assert f"{nats:.3f}" in text
    own, name = numbers["runs"][0]["results"]["nats"], "naive reference"
    if medium == "table":  # the best of those by column
        scores = {k: v["1"] for k, v in numbers["runs"][0]["comparison"]["nats"].items()}
        own = scores.pop("model")
        scores.pop("pooled")  # a pool of the model is no reference
        name = min(scores, key=scores.get)
        nats = scores[name]
    assert (f"NO BETTER than the {name}" in text) == (not own < nats)


def test_a_table_has_the_calibration_of_each_column(reported):
    run, _, numbers = reported("table")
    heat, valve = numbers["runs"][0]["calibration"]
    assert (heat["column"], heat["kind"]) == ("heat < $x$ & y", "numeric")
    assert (valve["column"], valve["kind"]) == ("valve", "binary")
    # Four of the 39 scored steps of a sequence are missing.
    assert heat["num_values"] * 39 == valve["num_values"] * 35
    assert "densities" in numbers["runs"][0]["units"]
    assert command(run).startswith(f"varfilter train {run.experiment.data.source} --data.sequence")


def test_music_has_reliability_and_the_papers_numbers(reported):
    _, page, numbers = reported("music")
    (found,) = numbers["runs"]
    (part,) = found["calibration"]
    assert part["kind"] == "binary"
    steps = sum(each["num_steps"] for each in found["inspected"])
    assert sum(part["counts"]) == part["num_values"] == 88 * steps
    assert all(0 <= p <= 1 for p in part["predicted"])
    assert found["results"]["published"]["nats"] == 6.97
    text = page.read_text(encoding="utf-8")
    assert ">6.97<" in text
    assert ">7.1<" in text


def test_speech_shows_waveforms_with_reconstructions(reported):
    _, page, numbers = reported("sound")
    text = page.read_text(encoding="utf-8")
    assert "the prediction decoded from the prior" in text
    assert "no reconstruction" not in text
    (part,) = numbers["runs"][0]["calibration"]
    assert part["nominal"] == list(NOMINAL)
    # A wider interval holds what a narrower one holds.
    assert part["observed"] == sorted(part["observed"])
    assert sum(part["ranks"]) == part["num_values"]


def test_time_is_counted_over_all_the_times_a_run_was_resumed():
    lines = [{"seconds": s} for s in (10.0, 20.0, 5.0, 7.0)]
    assert training_seconds(lines) == 27.0


def test_the_command_makes_the_run_again(reported, tmp_path):
    music, _, _ = reported("music")
    words = command(music)
    assert words.startswith("varfilter train srnn-jsb-avf --model.latent-size 3")
    assert "--filter.inference.hidden-size 4" in words
    plain = Run(tmp_path, experiment_named("srnn-jsb-avf"), music.record)
    assert command(plain) == "varfilter train srnn-jsb-avf"
    on = dataclasses.replace(
        experiment_named("srnn-timit-avf"),
        name="srnn-timit-avf-k2",
        filter=FilterChoice(AVF(num_iterations=2)),
        seed=3,
    )
    assert command(Run(tmp_path, on, {})) == (
        "varfilter train srnn-timit-avf --filter.inference.num-iterations 2"
        " --filter.inference.no-encode-observation --seed 3"
    )
    assert labels([plain, Run(tmp_path, on, {})]) == ["srnn-jsb-avf", "srnn-timit-avf-k2"]
    assert len(set(labels([plain, Run(tmp_path / "b", plain.experiment, {})]))) == 2


def test_every_medium_has_a_calibration(reported):
    for medium in ("music", "sound", "video", "table"):
        for part in reported(medium)[2]["runs"][0]["calibration"]:
            assert part["num_values"] > 0
            assert np.isfinite(part["observed"]).all()
