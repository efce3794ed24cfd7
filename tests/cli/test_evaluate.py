"""`varfilter evaluate`: scores beside the paper's and the naive ones, and those there cannot be."""

import json
from dataclasses import replace

import numpy as np
import pytest

import varfilter as vf
from commands import command
from songs import NUM_STEPS
from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.experiments import Baseline
from varfilter.media import load
from varfilter.runs.measures import measure_run
from varfilter.runs.run import Run, Trained
from varfilter.runs.scores import _in_density_units, name_of, score_particles, score_run
from varfilter.training.evaluation import Evaluation

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_evaluate(run):
    code, out, err = command("evaluate", run)
    assert code == 0, err
    scores = json.loads((run / "evaluation-test.json").read_text())
    assert scores["command"] == ["varfilter", "evaluate", str(run)]
    assert scores["data_sha256"] == Run.load(run).record["data"]["sha256"]
    assert (scores["num_sequences"], scores["num_steps"]) == (5, 5 * (NUM_STEPS - 1))
    # All songs are as long as each other: the averages differ by a factor, or not at all.
    assert scores["nats_by_step"] == pytest.approx(scores["nats"])
    as_published = scores["nats"] * (NUM_STEPS - 1) / NUM_STEPS
    assert scores["nats_as_published"] == pytest.approx(as_published)
    assert scores["nats_by_iteration"][-1] == pytest.approx(scores["nats"], rel=1e-5)
    assert scores["published"] == {
        "table": "table-3", "num_iterations": 1, "nats_as_published": 6.97, "nats": 7.1,
    }  # fmt: skip
    # The particle bound beside it, of the filter that a run of music applies.
    particle = scores["particle_bound"]
    assert (scores["bound"], scores["num_particles"]) == ("elbo", None)
    assert (particle["bound"], particle["num_particles"]) == ("fivo", 16)
    assert (particle["num_sequences"], particle["num_steps"]) == (5, 5 * (NUM_STEPS - 1))
    assert f"fivo with 16 particles: {particle['nats']:.4f} nats per step" in out
    assert "Scoring with 16 particles too" in err
    assert "--num-particles 1" in err
    assert scores["reference"]["what"] in out
    for words in (
        f"{scores['reference']['nats']:.4f}",
        f"{scores['nats']:.4f}",
        "6.9700",
        "7.1000",
        "evaluation-test.json",
    ):
        assert words in out
    options = (
        "--num-iterations",
        2,
        "--split",
        "valid",
        "--seed",
        3,
        "--num-particles",
        2,
        "--json",
    )
    code, out, _ = command("evaluate", run, *options)
    assert code == 0
    twice = json.loads(out)
    assert len(twice["nats_by_iteration"]) == 3
    name = "evaluation-valid-particles-2-iterations-2-seed-3.json"
    assert twice == json.loads((run / name).read_text())
    assert twice["particle_bound"]["num_particles"] == 2
    # Without it, all else is as it was.
    code, out, err = command("evaluate", run, "--num-particles", 1)
    assert code == 0
    assert "particles" not in out.replace("particles-1", "")
    assert err == ""
    scored = Run.load(run)
    assert name_of(scores, scored, num_futures=10) == "evaluation-test.json"  # as they are
    assert name_of(scores, scored, num_futures=100) == "evaluation-test-futures-100.json"
    # The measures are of as many iterations as the scores above them.
    options = {"split": "valid", "seed": 3, "num_particles": 2}
    assert twice["measures"] == measure_run(scored, num_iterations=2, **options)
    assert twice["measures"] != measure_run(scored, **options)
    alone = json.loads((run / "evaluation-test-particles-1.json").read_text())
    assert alone["particle_bound"] is None
    differing = {"command", "particle_bound", "measures"}  # which are of the filter that is applied
    assert {k: v for k, v in alone.items() if k not in differing} == {
        k: v for k, v in scores.items() if k not in differing
    }
    code, out, _ = command("evaluate", run, "--bound", "fivo", "--num-particles", 2, "--json")
    assert code == 0
    fivo = json.loads(out)
    assert fivo["num_particles"] == 2
    assert fivo["particle_bound"] is None  # it is one itself
    assert fivo["nats_by_iteration"] == []
    # The same filter and draws, in batches of another size: 32-bit sums in another order.
    beside = score_particles(Run.load(run), num_particles=2)
    assert beside["nats"] == pytest.approx(fivo["nats"], rel=1e-5)
    assert beside["prediction_error"] == pytest.approx(fivo["prediction_error"], rel=1e-5)
    assert (run / "evaluation-test-fivo-2.json").exists()


def test_densities_of_quantised_data():
    """log p(x) = log P(level) - log(width), where levels are narrow."""
    width, xs = 1e-3, np.array([0.3, -0.1, 0.7], np.float32)
    q = vf.Normal(np.zeros(3, np.float32), np.zeros(3, np.float32))
    density = -float(q.log_prob(xs))
    probability = -float(vf.DiscretizedNormal(q.mean, q.log_var, width).log_prob(xs))
    ragged = Ragged.of([np.zeros((2, 3), np.float32)])
    family = Family(vf.DiscretizedNormal, width=width)
    dataset = Dataset("quantised", ragged, ragged, ragged, family)
    one, three = np.ones(1), np.full(1, 3.0)
    found = Evaluation(
        np.zeros(1, int), one, probability * one, probability * np.ones((1, 2)), one, three
    )
    scores = _in_density_units(found, dataset)
    # A float32 CDF is right to 6e-8, a level's probability of 4e-4 so to 1.5e-4.
    assert scores["nats"] == pytest.approx(density, abs=1e-3)
    assert scores["nats_by_iteration"] == pytest.approx([density, density], abs=1e-3)
    plain = Dataset("plain", ragged, ragged, ragged, Family(vf.Normal))
    assert _in_density_units(found, plain) is None


def test_scores_that_there_cannot_be(run, tmp_path):
    with pytest.raises(ValueError, match=r"`num_particles` is 4, but .* elbo.*--bound"):
        score_run(Run.load(run), num_particles=4)
    code, _, err = command("evaluate", run, "--num-particles", 0)
    assert code == 2
    assert "`--num-particles`" in err
    assert not (run / "evaluation-test.json").exists()
    code, _, err = command("evaluate", run, "--num-iterations", 0)
    assert code == 2
    assert "`--num-iterations`" in err
    # What the medium or the method of the run has no use for.
    for option, words in (("--num-futures", "on music"), ("--horizon", "on music")):
        code, _, err = command("evaluate", run, option, 3)
        assert code == 2
        assert f"`{option}` is 3" in err
        assert words in err
        code, _, err = command("report", run, option, 3)
        assert (code, f"`{option}` is 3" in err) == (2, True)
    code, _, err = command("evaluate", run, "--split", "tset")
    assert code == 2
    assert "tset" in err
    code, _, err = command("evaluate", tmp_path / "none")
    assert code == 2
    assert "does not exist" in err
    # A run of a one-shot inference.
    experiment = Run.load(run).experiment
    choice = replace(experiment.filter, inference=Baseline(hidden_size=4))
    experiment = replace(experiment, filter=choice)
    dataset = load(experiment.data)
    other = Run.begin(tmp_path / "baseline", experiment, dataset)
    code, _, err = command("evaluate", other.folder)
    assert code == 2
    assert "no validated checkpoint yet" in err
    built = experiment.build(dataset)
    other.keep_best(Trained(built.model, built.filter, 1, 1.0))
    with pytest.raises(ValueError, match="infers with `Amortized`"):
        score_run(other, num_iterations=3)
