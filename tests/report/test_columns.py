"""A table beside its references: in the report, by `evaluate`, and in what is said of it last."""

import json
import re
import warnings

import jax
import numpy as np
import pytest

from varfilter.cli.evaluate import Evaluate
from varfilter.cli.options import TrainOptions
from varfilter.cli.seeds import _print_end as print_end_of_seeds
from varfilter.cli.train import _print_end
from varfilter.media.naive import LAST, LINEAR
from varfilter.plots.figures import InspectedSequence
from varfilter.plots.style import NARROW, WIDE
from varfilter.plots.tables import Fan, draw_columns, draw_fan, drawn_columns
from varfilter.report.columns import middle_fan
from varfilter.runs import Run, apply_run, comparison
from varfilter.runs.checkpointing import Best
from varfilter.runs.comparison import compare_run, remember_comparison
from varfilter.runs.metrics import verdict
from varfilter.runs.training import Stopped


def forgetful(run, folder, monkeypatch):
    """The run of another folder, whose record is kept in memory alone."""
    other = Run(folder, run.experiment, dict(run.record))
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(other, "remember", lambda **facts: other.record.update(facts))
    return other


HEAT, VALVE = "heat < $x$ & y", "valve"


def test_every_predictor_has_predicted_the_same_values(reported):
    run, page, numbers = reported("table")
    found = numbers["runs"][0]["comparison"]
    # A sequence has hardly more than one turn of what goes round in it.
    assert list(found["columns"]) == ["model", "pooled", LAST, LINEAR]
    assert found["notes"][0].startswith("There is no season")
    assert found["horizons"] == [1, 10]
    for ahead in ("1", "10"):
        counts = {
            tuple(scores[name]["num_values"] for name in (HEAT, VALVE))
            for scores in (each[ahead] for each in found["columns"].values())
        }
        # Of each of the test sequences of 40 rows, four of one column missing.
        steps = 40 - int(ahead)
        num = len(run.dataset.test)
        assert counts == {(num * (steps - 4), num * steps)}
        for name, each in found["columns"].items():
            total = sum(scores["nats"] for scores in each[ahead].values())
            assert found["nats"][name][ahead] == pytest.approx(total)
            assert each[ahead][VALVE]["within_90"] is None
            assert 0 <= each[ahead][HEAT]["within_50"] <= each[ahead][HEAT]["within_90"] <= 1
    text = page.read_text(encoding="utf-8")
    assert text.count("linear model</td>") == 2 * 3
    assert "One step ahead" in text
    # What was learned for it stays in the folder.
    assert (run.folder / comparison.LINEAR).exists()
    forecast = numbers["runs"][0]["forecast"]
    assert (forecast["horizon"], forecast["first_step"]) == (10, 20)
    assert forecast["name"] == numbers["runs"][0]["drawn"][0]["name"]
    # Nothing of the paper's, and no constants.
    assert "divided by T" not in text
    assert "weight of the KL" not in text


def test_evaluate_prints_a_table_that_a_terminal_shows(reported, capsys):
    run, _, numbers = reported("table")
    assert Evaluate(run.folder, num_particles=256, horizon=10)() == 0
    out = capsys.readouterr().out
    assert max(map(len, out[out.index("one step ahead") :].splitlines()[:-1])) <= 80
    kept = json.loads((run.folder / "evaluation-test-horizon-10.json").read_text())
    # The same draws as those of the report.
    assert kept["comparison"] == numbers["runs"][0]["comparison"]
    rmse = kept["comparison"]["columns"][LINEAR]["10"][HEAT]["rmse"]
    assert re.search(rf"linear model +{rmse:.3f}", out)
    assert Evaluate(run.folder, horizon=0)() == 2
    assert "--horizon" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"`horizon` is 40, but the longest .* 39 steps"):
        compare_run(run, horizon=40)


def test_a_run_that_loses_says_so_where_it_is_used(reported, monkeypatch, tmp_path):
    run, _, numbers = reported("table")
    found = numbers["runs"][0]["comparison"]
    other = forgetful(run, tmp_path, monkeypatch)
    monkeypatch.setattr(comparison, "compare_run", lambda *_, **__: found)
    monkeypatch.setattr(comparison, "pool_run", lambda *_: None)
    notes = remember_comparison(other, run.dataset)["notes"]
    assert any("Forecasts will be the model's alone" in note for note in notes)
    nats = other.record["comparison"]
    assert set(nats) == {"model", "pooled", LAST, LINEAR}
    other.record["losses"] = {}  # as of before there were any
    other.record["comparison"] = {"model": 2.0, LAST: 3.0, LINEAR: 1.5}
    said = verdict(other)
    assert said.startswith(
        f"The model is no better than the {LINEAR}: 2.0000 nats per step of the valid"
    )
    assert "1.5000" in said
    other.record["comparison"] = {"model": 1.0, LAST: 3.0, LINEAR: 1.5}
    assert verdict(other) is None


def test_training_ends_with_what_it_lost_to(reported, monkeypatch, tmp_path, capsys):
    run, _, numbers = reported("table")
    found = numbers["runs"][0]["comparison"]
    nats = {"model": {"1": 9.0}, LAST: {"1": 8.0}, LINEAR: {"1": 7.5}}
    nats = {name: each | {"10": each["1"]} for name, each in nats.items()}
    monkeypatch.setattr(comparison, "compare_run", lambda *_, **__: found | {"nats": nats})
    # Alarms are tested elsewhere, and need what was learned.
    monkeypatch.setattr("varfilter.runs.applied.calibrate_run", lambda *_: None)
    monkeypatch.setattr(comparison, "pool_run", lambda *_: None)
    other = forgetful(run, tmp_path, monkeypatch)
    stopped = Stopped("enough", 2, Best(9.0, 2))
    _print_end(other, run.dataset, stopped, TrainOptions())
    out = capsys.readouterr().out
    assert "one step ahead" in out
    assert "alarms: none, since fewer than 30 steps of the validation part" in out
    last = " ".join(out[out.rindex("warning:") :].split())
    assert last.startswith(
        f"warning: The model is no better than the {LINEAR}: 9.0000 nats per step"
    )
    # Who asked for the last lines has the verdict, without the table.
    _print_end(other, run.dataset, stopped, TrainOptions(quiet=True))
    out = capsys.readouterr().out
    assert "one step ahead" not in out
    assert "no better than" in out


def test_seeds_end_with_what_each_of_them_lost_to(reported, monkeypatch, tmp_path, capsys):
    run, _, numbers = reported("table")
    found = numbers["runs"][0]["comparison"]
    rmse = found["columns"]["model"]["1"][HEAT]["rmse"]

    def compared(each, **_):
        """The second seed is worse by one nat, and twice as far away."""
        if each.folder.name == "seed-0":
            (each.folder / comparison.LINEAR).write_bytes(b"learned")
            return found
        # What was learned for the first is not learned again.
        assert (each.folder / comparison.LINEAR).read_bytes() == b"learned"
        own = {ahead: nats + 1.0 for ahead, nats in found["nats"]["model"].items()}
        columns = json.loads(json.dumps(found["columns"]))
        columns["model"]["1"][HEAT]["rmse"] = 2 * rmse
        return found | {"nats": found["nats"] | {"model": own}, "columns": columns}

    monkeypatch.setattr(comparison, "compare_run", compared)
    monkeypatch.setattr("varfilter.runs.applied.calibrate_run", lambda *_: None)
    monkeypatch.setattr(comparison, "pool_run", lambda *_: None)
    runs = [forgetful(run, tmp_path / f"seed-{i}", monkeypatch) for i in range(2)]
    stopped = {i: Stopped("enough", 2, Best(9.0, 2)) for i in range(2)}
    print_end_of_seeds(tmp_path, runs, run.dataset, stopped, TrainOptions())
    out = capsys.readouterr().out
    assert "means over 2 seeds" in out
    assert re.search(rf"model +{1.5 * rmse:.3f}", out)
    nats = [each.record["comparison"]["model"] for each in runs]
    assert nats[1] == pytest.approx(nats[0] + 1.0)
    for each in runs:
        said = verdict(each)
        assert said is None or said in " ".join(out.split())


def test_a_medium_without_columns_is_compared_with_nothing(reported):
    run, _, numbers = reported("music")
    assert compare_run(run) is None
    assert numbers["runs"][0]["comparison"] is None


def sequence_of(times, num_columns=2):
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(len(times), num_columns))
    xs[:, 1] = 0.5  # nothing to see
    return InspectedSequence(
        "one", 1, len(xs), xs, xs, xs - 1, xs + 1, xs, None, rng.random(len(xs)), times
    )


def test_figures_have_the_units_and_the_times_of_the_table(reported):
    run, _, _ = reported("table")
    dataset = run.dataset
    days = np.datetime64("2024-01-30") + np.arange(50)
    sequence = sequence_of(days)
    for width in (WIDE, NARROW):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = draw_columns(dataset, sequence, width)
            figure.canvas.draw()
        heat, below = figure.axes  # and no panel of the constant
        shown = [text.get_text() for text in below.get_xticklabels()]
        assert any("Feb" in text for text in shown)
        own = heat.lines[1].get_ydata()
        np.testing.assert_allclose(own, dataset.scaling.restore(sequence.xs)[:, 0])
    assert drawn_columns(sequence.xs) == [0]
    longer = sequence_of(np.arange(900.0))
    longer = longer._replace(surprise=np.where(np.arange(900) == 700, 50.0, 0.0))
    part = run.medium.inspected(longer)
    assert len(part.xs) == 300
    assert part.first <= 701 <= part.first + 299
    assert part.times[0] == part.first - 1


def test_a_forecast_is_drawn_beside_what_came(reported):
    run, _, _ = reported("table")
    dataset = run.dataset
    # A horizon that is longer than the sequence has no middle to begin in.
    assert middle_fan(apply_run(run), dataset, "test", 0, 40, jax.random.key(0)) is None
    xs = dataset.observations(np.asarray(dataset.test[0]))[:20]
    quantiles = np.linspace(-1, 1, 5)[:, None, None] + 0 * xs[None, -8:]
    found = Fan("one", 3, xs, quantiles, None)
    assert found.horizon == 8
    narrow, wide = found.shares()
    seen = xs[-8:][~np.isnan(xs[-8:])]
    assert wide == pytest.approx(np.mean(np.abs(seen) <= 1))
    assert narrow == pytest.approx(np.mean(np.abs(seen) <= 0.5))
    figure = draw_fan(dataset, found, WIDE)
    assert len(figure.axes) == 2
    ahead = figure.axes[0].lines[0]
    np.testing.assert_array_equal(ahead.get_xdata(), np.arange(15, 23))
