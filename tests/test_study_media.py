"""The plans of speech, film, FIVO and iterations; their data in files; and the released routing."""

import importlib
import json
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import worlds
from tiny_runs import sentences, videos
from varfilter.experiments import AVF, Baseline
from varfilter.experiments.experiment import as_json, differences, from_json
from varfilter.report.study import METHODS, parts_of
from varfilter.runs.sweep import require_one_program

ROOT = Path(__file__).parent.parent
CALLS = ("call-1", "call-2", "call-3")


@pytest.fixture(scope="module")
def study():
    """The modules of the study, by their names."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        names = ("study_media", "study_plans", "study_data", "study_scores", "study_routing")
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def choices():
    """What the second search has found."""
    path = ROOT / "results" / "table-3" / "search-2-jsb.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_cell_is_one_program_that_reports_can_read(study, choices):
    names = set()
    for call in CALLS:
        for cell in study["study_media"].MEDIA_PLANS[call](choices):
            require_one_program(cell.experiments)
            assert len(set(cell.folders)) == len(cell.experiments)
            assert (cell.name in names, cell.kept_back < 200) == (False, True)
            names.add(cell.name)
            method = parts_of(cell.name)[2]
            is_known = method in METHODS or cell.table == "figure-4"
            assert is_known, cell.name


def test_methods_of_speech_and_film_learn_their_model_alike(study):
    plans = study["study_media"].MEDIA_PLANS
    cells = {cell.name: cell for cell in (*plans["speech"]({}), *plans["film"]({}))}
    for start in ("srnn-emodb", "vrnn-timit-sample", "svg-weizmann"):
        base, avf = (cells[f"{start}-{each}-best"].experiments[0] for each in ("baseline", "avf"))
        found = {".".join(name.split(".")[:2]) for name in differences(base, avf)}
        assert found <= {"name", "filter.inference", "optimizer.phi"}
        kinds = [type(each.filter.inference) for each in (base, avf)]
        assert kinds == [Baseline, AVF]
    two = cells["srnn-emodb-avf-2-best"].experiments[0]
    one = cells["srnn-emodb-avf-best"].experiments[0]
    assert set(differences(one, two)) == {"name", "filter.inference.num_iterations"}


def test_members_with_one_seed_are_points_and_one_is_scored(study, choices):
    avf, baseline = study["study_media"].fivo(choices)
    assert avf.points == baseline.points == [0, 0, 1, 1]
    assert avf.folders[2:] == ["point-1-seed-0", "point-1-seed-1"]
    # The same points for both.
    for one, other in zip(avf.experiments, baseline.experiments, strict=True):
        assert one.optimizer.theta == other.optimizer.theta
        assert one.filter.num_particles == other.filter.num_particles == 16
    tiny = study["study_media"].small([avf])[0]
    assert [each.seed for each in tiny.experiments] == [0, 0]
    assert tiny.points == [0, 1]


@pytest.mark.parametrize("medium", ["sound", "video"])
def test_prepared_data_are_the_same_numbers(study, medium, tmp_path, monkeypatch):
    dataset = {"sound": sentences, "video": videos}[medium]()
    data = study["study_data"]
    monkeypatch.setattr("varfilter.media.load", lambda _: dataset)
    path = data.prepare("any", tmp_path)
    found = data.load_prepared(path)
    assert found.sha256() == dataset.sha256()
    assert (found.family, found.rows_per_step) == (dataset.family, dataset.rows_per_step)
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(found.split(split).lengths, dataset.split(split).lengths)
        assert found.sequence_names(split) == dataset.sequence_names(split)


def test_the_released_routing_changes_gradients_and_nothing_else(study):
    """What the past says teaches the encoder nothing, nor z; what q sees of x_t does."""
    svg = worlds.svg(use_skips=False)
    routed = study["study_routing"].Routed(svg)
    x = jax.random.uniform(jax.random.key(0), (1, 8, 8))

    @eqx.filter_jit
    def gradients(model):
        def next_frame(model_and_z):
            model, z = model_and_z
            state = model.advance(model.init(None), z, model.embed(x))
            return jnp.sum(model.emission(state, jnp.zeros_like(z)).mean)

        value, (of_model, of_z) = eqx.filter_value_and_grad(next_frame)((model, jnp.ones(3)))
        of_code = eqx.filter_grad(lambda model: jnp.sum(model.embed(x).code))(model)
        return value, of_model, of_z, of_code

    def size(tree):
        return sum(float(np.abs(each).sum()) for each in jax.tree.leaves(tree))

    value, true, of_z, _ = gradients(svg)
    same, cut, of_cut_z, of_code = gradients(routed)
    np.testing.assert_allclose(value, same, rtol=1e-6)
    assert min(size(true.encoder), size(of_z)) > 0.0
    assert size(cut.model.encoder) == size(of_cut_z) == 0.0
    assert size(of_code.model.encoder) > 0.0
    # What reads the code learns as ever.
    for part in ("predictor", "predictor_out", "decoder"):
        own, other = size(getattr(true, part)), size(getattr(cut.model, part))
        np.testing.assert_allclose(own, other, rtol=1e-5)


def test_records_of_the_routed_model_are_read_again(study):
    cell = study["study_media"].film({})[2]
    assert from_json(as_json(cell.experiments[0]), "video") == cell.experiments[0]


def test_films_are_scored_as_released_with_its_window(study):
    """Of 1/256, for levels 1/255 apart; also where the SVG is inside of the routed one."""
    for model in (worlds.svg(), study["study_routing"].Routed(worlds.svg())):
        released = study["study_scores"].as_released(model)
        state = eqx.filter_eval_shape(released.init, None)
        z = jax.ShapeDtypeStruct((3,), jnp.float32)
        emission = eqx.filter_eval_shape(released.emission, state, z)
        assert (type(emission).__name__, emission.width) == ("PaperDiscretizedNormal", 1 / 256)


def test_scores_as_released_are_those_of_its_formula(study):
    """log(Phi(x + w) - Phi(x) + 1e-6), of the mean and the spread that the model says."""
    small = study["study_media"].small(study["study_media"].speech({}))
    baseline = next(each for each in small if each.name == "srnn-emodb-baseline-best")
    dataset = sentences()
    model = baseline.experiments[0].build(dataset).model
    released = study["study_scores"].as_released(model)
    xs = dataset.observations(dataset.train[0])
    emissions = []
    for each in (model, released):
        state = each.init(jnp.asarray(xs[0]))
        z = jnp.full_like(each.prior(state).mean, 0.3)
        emissions.append(each.emission(state, z))
    ours, theirs = emissions
    scale = np.exp(0.5 * np.asarray(ours.log_var, np.float64)) + 1e-5 / np.sqrt(2)
    residual = xs[1] - np.asarray(ours.mean, np.float64)
    mass = norm.cdf((residual + ours.width) / scale) - norm.cdf(residual / scale)
    want = np.sum(np.log(mass + 1e-6))
    # Single precision: differences of numbers up to 1, of which a level is some 1e-3.
    assert float(theirs.log_prob(jnp.asarray(xs[1]))) == pytest.approx(want, rel=1e-3)
    # What is impossible by ours has the floor there.
    far = jnp.asarray(xs[1]) + 60.0
    assert float(theirs.log_prob(far)) == pytest.approx(200 * np.log(1e-6), rel=1e-3)
    assert float(ours.log_prob(far)) < 2 * 200 * np.log(1e-6)
