"""Reports: every kind of data has a page that a browser shows whole, and numbers that add up."""

import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from varfilter.experiments.tables import table_experiment

from browser import look_at
from varfilter.cli.report import Report
from varfilter.data import Ragged
from varfilter.experiments import (
    AVF,
    Adam,
    FilterChoice,
    Optimizers,
    Run,
    Schedule,
    Source,
    SRNNSizes,
    SVGSizes,
    Trained,
    named,
    train,
)
from varfilter.experiments.models import TableSizes
from varfilter.media.catalogue import Loaded
from varfilter.plots.curves import improvement
from varfilter.report import report, reproduce
from varfilter.report.calibration import NOMINAL, coverage, reliability
from varfilter.report.inspection import look, loudest_window, most_surprising
from varfilter.report.reproduce import wanted_by
from varfilter.report.summary import command, labels, training_seconds
from varfilter.training.evaluation import evaluate

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))
SRNN = SRNNSizes(
    latent_size=3, recurrent_size=4, prior_size=4, decoder_size=4, num_decoder_layers=1
)
SVG = SVGSizes(
    latent_size=3, code_size=4, recurrent_size=4, channels=(4,), convolutions=(2,), std=0.1
)
ADAM = Adam(1e-2)
OPTIMIZERS = Optimizers(ADAM, ADAM, num_phi_steps=2)
CHOICE = FilterChoice(AVF(hidden_size=4, num_layers=1))
SCHEDULE = Schedule(num_epochs=4, batch_size=4, num_steps=6, windows_per_epoch=4)
KINDS = ("music", "speech", "video", "table")


def shortened(dataset, num_steps=24):
    """A few sequences of each split, the first steps of each: these tests compile, not learn."""
    counts = {"train": 6, "valid": 2, "test": 4}
    rows = num_steps * dataset.rows_per_step
    parts = {
        split: Ragged.of([np.asarray(sequence[:rows]) for sequence in dataset.split(split)[:count]])
        for split, count in counts.items()
    }
    names = {split: names[: counts[split]] for split, names in dataset.names.items()}
    return dataclasses.replace(dataset, **parts, names=names)


def readings(folder):
    """A table of a numeric and a binary column, with gaps and a value that nobody expects."""
    rng = np.random.default_rng(0)
    # A name that HTML and the pictures' own markup would take for something else.
    lines = ["pump,heat < $x$ & y,valve"]
    for pump in range(20):
        heat = 20 + 5 * np.sin(np.arange(40) / 5.0 + pump) + 0.2 * rng.normal(size=40)
        heat[30] += 100.0
        for t, value in enumerate(heat):
            seen = "" if 10 <= t < 14 else f"{value:.4f}"
            lines.append(f"p{pump},{seen},{int(value > 21)}")
    path = folder / "readings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny(kind, folder):
    """(the experiment, its data) of a kind."""
    if kind == "table":
        source = Source(str(readings(folder)), sequence="pump")
        sizes = TableSizes(latent_size=3, hidden_size=4)
        experiment = dataclasses.replace(table_experiment(source), model=sizes)
        loaded = source.load()
    else:
        name, source = {
            "music": ("srnn-jsb-avf", Source("jsb")),
            "speech": ("srnn-timit-sample-avf", Source("timit-sample")),
            "video": ("svg-weizmann-avf", Source("weizmann", size=8)),
        }[kind]
        model = SVG if kind == "video" else SRNN
        experiment = dataclasses.replace(named(name), data=source, model=model)
        loaded = Loaded(shortened(source.load().dataset))
    return dataclasses.replace(
        experiment, filter=CHOICE, optimizer=OPTIMIZERS, schedule=SCHEDULE
    ), loaded


def keep_untrained(run):
    """As if it had been trained: an update of SVG takes a minute to compile, tested elsewhere."""
    model, filter, _ = run.experiment.build(run.loaded.dataset)
    run.keep_best(Trained(model, filter, 2, 300.0))
    for step in (1, 2):
        train = {"free_energy": 310.0 - step, "kl": 2.0, "reconstruction": 308.0 - step}
        line = {"step": step, "epoch": step / 2, "seconds": 1.0 * step, "kl_weight": 1.0}
        run.append_metrics({**line, "train": train, "valid": {"nats": 302.0 - step}, "best": 300.0})


@pytest.fixture(scope="module", autouse=True)
def _data_folder():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VARFILTER_DATA", str(DATA))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """By kind: the run, its page and the numbers; trained for a few updates, once."""
    known = {}

    def make(kind):
        if kind not in known:
            if kind != "table" and not DATA.is_dir():
                pytest.skip(f"needs the data sets in {DATA}")
            folder = tmp_path_factory.mktemp(kind)
            experiment, loaded = tiny(kind, folder)
            run = Run.begin(folder / "run", experiment, loaded)
            run.loaded = loaded
            if kind == "video":
                keep_untrained(run)
            else:
                for _ in train(run, loaded.dataset, max_updates=2):
                    pass
            page = report([run], run.folder / "report.html")
            known[kind] = run, page, json.loads(page.with_suffix(".json").read_text())
        return known[kind]

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_a_browser_shows_the_page_whole_on_every_screen(made, tmp_path, kind):
    _, page, _ = made(kind)
    measured, said, pictures = look_at(page, (1280, 400), tmp_path)
    assert said == ""
    assert set(measured) == {1280, 400}
    for width, told in measured.items():
        assert told["scroll"] <= width, "the page scrolls sideways"
        assert told["images"] >= 4
        assert told["blank"] == 0
        assert told["wrong"] == []
        assert told["asked"] == [], "the page asks for something elsewhere"
        # Not blank: ink in every stretch of a screen's height.
        assert told["height"] > 2000
        for begin in range(0, min(told["height"], 6000) - 700, 700):
            assert pictures[width][begin : begin + 700].std() > 5.0
    # Small screens have pictures of their own, with letters as large as the page's.
    assert max(measured[400]["drawn"]) < min(measured[1280]["drawn"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_self_contained_and_says_what_was_run(made, kind):
    run, page, numbers = made(kind)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|srcset|href)="(?!data:)', text)
    assert "<script" not in text
    assert text.count("<img ") == text.count("<img alt=") == text.count("<source ")
    (told,) = numbers["runs"]
    for shown in (run.experiment.name, told["data"]["sha256"], told["bound"], told["revision"]):
        assert shown is None or shown in text
    assert f"{told['num_parameters']['model']:,} model" in text
    assert "heat &lt; $x$ &amp; y" in text or kind != "table"


@pytest.fixture(scope="module")
def scores(made):
    """Of the table's run, by the library itself."""
    run, _, _ = made("table")
    model, filter, _, _ = run.trained()
    return evaluate(filter, model, run.loaded.dataset, jax.random.key(0), batch_size=3)


def test_the_numbers_are_those_of_an_evaluation(made, scores):
    run, _, numbers = made("table")
    _, _, step, valid = run.trained()
    (told,) = numbers["runs"]
    results = told["results"]
    # Programs of another shape round otherwise.
    assert results["nats"] == pytest.approx(scores.nats, rel=1e-5)
    assert results["nats_as_published"] == pytest.approx(results["nats"] * 39 / 40, rel=1e-6)
    assert results["standard_error"] == pytest.approx(scores.standard_error, rel=1e-4)
    assert (told["best_step"], told["best_valid"]) == (step, valid)
    assert told["sequences"]["of"] == len(run.loaded.dataset.test) > 1
    best, worst = (told["sequences"][which][0]["nats"] for which in ("best", "worst"))
    assert best == pytest.approx(scores.per_sequence.min(), rel=1e-5)
    assert worst == pytest.approx(scores.per_sequence.max(), rel=1e-5)
    assert told["metrics"] == run.metrics()
    # At the prior, and after the one iteration.
    assert len(results["nats_by_iteration"]) == 2
    assert results["nats_by_iteration"][-1] == pytest.approx(results["nats"], rel=1e-6)


def test_the_surprise_of_a_picture_is_that_of_the_scores(made, scores):
    run, _, numbers = made("table")
    model, filter, _, _ = run.trained()
    dataset = run.loaded.dataset
    options = {"split": "test", "most_steps": 300, "num_samples": 64}
    looked = look(filter, model, dataset, jax.random.key(0), np.array([1]), **options)[0]
    assert np.sum(looked.surprise) == pytest.approx(scores.free_energy[1], rel=1e-4)
    # The value that nobody expects is the most surprising, in every sequence.
    for drawn in numbers["runs"][0]["drawn"]:
        peak = max(drawn["most_surprising"], key=lambda each: each["surprise"])
        assert peak["step"] == 30
    np.testing.assert_array_equal(np.isnan(looked.ranks), np.isnan(looked.xs))
    seen = looked.ranks[~np.isnan(looked.ranks)]
    assert ((seen > 0) & (seen < 1)).all()
    assert (looked.low <= looked.high).all()
    window = loudest_window(looked, 5)
    assert window.first <= 30 < window.first + 5
    assert len(window.surprise) == 5
    assert window.surprise[30 - window.first] == looked.surprise[29]
    assert 30 in [each["step"] for each in most_surprising(window)]


def test_a_table_has_the_calibration_of_each_column(made):
    run, _, numbers = made("table")
    heat, valve = numbers["runs"][0]["calibration"]
    assert (heat["column"], heat["kind"]) == ("heat < $x$ & y", "numeric")
    assert (valve["column"], valve["kind"]) == ("valve", "binary")
    # Four of the 39 scored steps of a sequence are missing.
    assert heat["num_values"] * 39 == valve["num_values"] * 35
    assert "densities" in numbers["runs"][0]["units"]
    assert command(run).startswith(f"varfilter train {run.experiment.data.source} --data.sequence")


def test_music_has_reliability_and_the_papers_numbers(made):
    _, page, numbers = made("music")
    (told,) = numbers["runs"]
    (part,) = told["calibration"]
    assert part["kind"] == "binary"
    steps = sum(each["num_steps"] for each in told["looked_at"])
    assert sum(part["counts"]) == part["num_values"] == 88 * steps
    assert all(0 <= p <= 1 for p in part["predicted"])
    assert told["results"]["published"]["nats"] == 6.97
    text = page.read_text(encoding="utf-8")
    assert ">6.97<" in text
    assert ">7.1<" in text


def test_speech_shows_waveforms_with_reconstructions(made):
    _, page, numbers = made("speech")
    text = page.read_text(encoding="utf-8")
    assert "the prediction decoded from the prior" in text
    assert "no single reconstruction" not in text
    (part,) = numbers["runs"][0]["calibration"]
    assert part["nominal"] == list(NOMINAL)
    # A wider interval holds what a narrower one holds.
    assert part["observed"] == sorted(part["observed"])
    assert sum(part["ranks"]) == part["num_values"]


def test_several_runs_stand_side_by_side(made, tmp_path):
    music, _, _ = made("music")
    table, _, _ = made("table")
    page = report([table, table, music], tmp_path / "three.html")
    numbers = json.loads((tmp_path / "three.json").read_text())
    names = [run["label"] for run in numbers["runs"]]
    assert len(names) == 3
    text = page.read_text(encoding="utf-8")
    for name in names:
        assert name in text
    # The learning curves of each data set: others have other scales.
    assert len(re.findall("of training batches and of the whole validation part", text)) == 2 * 2


def test_ranks_of_right_predictions_cover_as_they_should():
    ranks = np.random.default_rng(0).uniform(size=100_000)
    # Four standard errors of a frequency near one half, sqrt(0.25 / 1e5).
    np.testing.assert_allclose(coverage(ranks), NOMINAL, atol=4 * 0.0016)
    narrow = 0.5 + 0.5 * (ranks - 0.5)
    assert coverage(narrow)[NOMINAL.index(0.5)] == 1.0


def test_probabilities_that_are_right_are_on_the_diagonal():
    rng = np.random.default_rng(0)
    predicted = rng.uniform(size=100_000)
    found = reliability(predicted, (rng.uniform(size=100_000) < predicted).astype(float))
    # Four standard errors in a bin of ten thousand.
    np.testing.assert_allclose(found["observed"], found["predicted"], atol=4 * 0.005)
    assert sum(found["counts"]) == 100_000
    found = reliability(np.array([0.95, 1.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    assert found["counts"] == [1, 2]
    assert found["observed"] == [0.0, 0.5]


def test_improvement_is_in_percent_of_the_prior():
    assert improvement([200.0, 150.0, 140.0]) == [0.0, 25.0, 30.0]


def test_time_is_counted_over_all_the_times_a_run_went_on():
    lines = [{"seconds": s} for s in (10.0, 20.0, 5.0, 7.0)]
    assert training_seconds(lines) == 27.0


def test_the_command_makes_the_run_again(made, tmp_path):
    music, _, _ = made("music")
    words = command(music)
    assert words.startswith("varfilter train srnn-jsb-avf --model.latent-size 3")
    assert "--filter.inference.hidden-size 4" in words
    plain = Run(tmp_path, named("srnn-jsb-avf"), music.record)
    assert command(plain) == "varfilter train srnn-jsb-avf"
    on = dataclasses.replace(
        named("srnn-timit-avf"),
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


def test_wrong_words_are_refused_in_a_line(made, tmp_path, capsys):
    run, _, _ = made("table")
    assert Report((tmp_path / "nowhere",))() == 2
    said = capsys.readouterr().err
    assert "not the folder of a run" in said
    assert said.count("\n") == 1
    assert Report((run.folder,), out=tmp_path / "page.pdf")() == 2
    assert ".html" in capsys.readouterr().err
    assert Report((run.folder,), out=tmp_path / "no" / "page.html")() == 2
    assert "no folder" in capsys.readouterr().err
    # As a user runs it, with the data read again; and when they are gone.
    assert Report((run.folder,), out=tmp_path / "page.html")() == 0
    assert str(tmp_path / "page.html") in capsys.readouterr().out
    path = run.folder.parent / "readings.csv"
    kept = path.rename(tmp_path / "elsewhere.csv")
    assert Report((run.folder,), out=tmp_path / "page.html")() == 2
    assert "readings.csv" in capsys.readouterr().err
    kept.rename(path)


@pytest.fixture
def small_paper(monkeypatch):
    """One experiment of the paper's, tiny, on a few sequences of the free data."""
    if not DATA.is_dir():
        pytest.skip(f"needs the data sets in {DATA}")
    experiments = {}
    for name in ("srnn-timit-avf", "srnn-timit-sample-avf"):
        experiments[name] = dataclasses.replace(
            named(name), model=SRNN, filter=CHOICE, optimizer=OPTIMIZERS, schedule=SCHEDULE
        )
    loaded = Loaded(shortened(Source("timit-sample").load().dataset))

    def load(self):
        if self.source == "timit":
            raise FileNotFoundError("timit is not here. It is sold by the LDC.")
        return loaded

    monkeypatch.setattr(Source, "load", load)
    module = sys.modules["varfilter.report.reproduce"]
    monkeypatch.setattr(module, "EXPERIMENTS", experiments)
    monkeypatch.setattr(module, "named", experiments.__getitem__)


def test_a_table_says_what_is_missing(small_paper, tmp_path):
    told = []
    page = reproduce("table-1", tmp_path, max_updates=1, tell=told.append)
    numbers = json.loads((tmp_path / "table-1.json").read_text())
    assert [row["wanted"] for row in numbers["rows"]] == ["srnn-timit-avf"]
    assert all("sold by the LDC" in row["missing"] for row in numbers["rows"])
    for text in (page.read_text(), (tmp_path / "table-1.md").read_text()):
        assert "missing" in text
        assert "1,024" in text
        assert "1,028" in text
    assert "left out" in told[0]
    assert not (tmp_path / "runs").exists()


def test_a_table_of_free_data_says_so_and_goes_on(small_paper, tmp_path):
    told = []
    options = {"at_hand": True, "tell": told.append}
    page = reproduce("table-1", tmp_path, max_updates=1, **options)
    assert "INSTEAD" in told[0]
    first = json.loads((tmp_path / "table-1.json").read_text())
    for row in first["rows"]:
        assert row["is_at_hand"]
        assert row["data"] == "timit-sample"
        assert row["num_updates"] == 1
        assert np.isfinite(row["results"]["nats"])
    text = page.read_text(encoding="utf-8")
    assert "OTHER DATA" in text
    assert "A short try: at most 1 update(s) each" in text
    # Again: what is trained is not trained again, and scores the same.
    reproduce("table-1", tmp_path, max_updates=1, **options)
    assert json.loads((tmp_path / "table-1.json").read_text()) == first
    # The waveforms are of the run that is there.
    told.clear()
    page = reproduce("figure-3", tmp_path, max_updates=1, **options)
    assert (tmp_path / "figure-3-1.png").stat().st_size > 10_000
    assert page.read_text(encoding="utf-8").count("<img ") == 2
    assert not any("validation" in line for line in told)


def test_every_table_is_of_experiments_that_have_a_name():
    for what, count in (("table-1", 4), ("table-2", 2), ("table-3", 8)):
        assert len(wanted_by(what)) == count
    names = [each.name for each in wanted_by("figure-4")]
    assert names == ["vrnn-timit-avf", *(f"vrnn-timit-avf-k{k}" for k in (2, 4, 8))]
