"""A trained run at work: files and live lines give the same rows, without the training data."""

import io
import json
import shutil
import sys
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

import varfilter as vf
from varfilter import cli
from varfilter.data.audio import read_audio, write_wav
from varfilter.data.dataset import Dataset, Family, Scaling
from varfilter.data.midi import read_midi, write_midi
from varfilter.data.ragged import Ragged
from varfilter.distributions import Bernoulli, DiscretizedNormal
from varfilter.experiments import (
    Baseline,
    Experiment,
    FilterChoice,
    Schedule,
    SRNNSizes,
    TableSizes,
    VRNNSizes,
    own_experiment,
)
from varfilter.filtering import start
from varfilter.filters import ParticleFilter, VariationalFilter
from varfilter.media import load, source_of
from varfilter.media.music import MusicSource
from varfilter.media.sound import SoundSource
from varfilter.media.table import TableSource
from varfilter.media.video import VideoSource
from varfilter.models import Widened
from varfilter.runs import (
    Run,
    TableFilter,
    Trained,
    apply_run,
    calibrate_run,
    filter_data,
    forecast_data,
    sample_run,
    train_run,
)
from varfilter.runs.applied import applied_filter

SMALL = SRNNSizes(
    latent_size=2, recurrent_size=4, prior_size=4, decoder_size=4, num_decoder_layers=1
)
SMALLEST = VRNNSizes(*[2] * 6, num_layers=1)
BASELINE = FilterChoice(Baseline(hidden_size=4))
SCHEDULE = Schedule(num_epochs=1, batch_size=4, num_steps=6)


def experiment(name, source, model=SMALL):
    return Experiment(name, source, model, BASELINE, schedule=SCHEDULE)


def readings():
    """Of four pumps, a minute each."""
    rng = np.random.default_rng(0)
    return {
        "pump": np.repeat(["a", "b", "c", "d"], 60),
        "when": np.tile(np.arange(60) * 0.5, 4),
        "is_on": rng.integers(0, 2, 240),
        "warm": np.round(20.0 + rng.normal(0.0, 2.0, 240), 3),
    }


def lines_of(names, times, warm, is_on):
    """The same readings as CSV and as JSON lines; NaN is empty, and null or absent."""
    text, lines = ["pump,when,is_on,warm,remark"], []
    for name, time, w, on in zip(names, times, warm, is_on, strict=True):
        text.append(f"{name},{time},{on},{'' if np.isnan(w) else w},fine")
        line = {"pump": name, "when": time, "is_on": int(on)}
        lines.append(json.dumps(line if np.isnan(w) else {"warm": w, **line}))
    return "\n".join(text) + "\n", "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run on a table that is gone, and new readings of two pumps, a step of which is lost."""
    folder = tmp_path_factory.mktemp("world")
    pumps = readings()
    warm, is_on = pumps["warm"], pumps["is_on"]
    training = folder / "pumps.csv"
    training.write_text(lines_of(pumps["pump"], pumps["when"], warm, is_on)[0])
    source = TableSource(str(training), sequence="pump", time="when")
    dataset = vf.load(source)
    run = Run.begin(folder / "run", experiment("pumps", source), dataset)
    for _ in train_run(run, dataset):
        pass
    # What is healthy, to the filter of most tests: later on, the folder of the run is all there is.
    calibrate_run(run, dataset, num_particles=12, num_samples=20)
    training.unlink()
    # Pump x from 3.0 on, in steps of 0.5; the row of 5.5 never came, and a value is missing.
    times = [*(3.0 + 0.5 * t for t in (0, 1, 2, 3, 4, 6, 7)), *(0.5 * t for t in range(4))]
    names = ["x"] * 7 + ["y"] * 4
    new = warm[:11].copy()
    new[3] = np.nan
    text, lines = lines_of(names, times, new, is_on[:11])
    (folder / "new.csv").write_text(text)
    (folder / "new.jsonl").write_text(lines)
    return folder


@pytest.fixture
def varfilter(monkeypatch, capsys):
    """(exit code, rows, errors) of a command, in this process."""

    def run(*arguments, lines=None):
        monkeypatch.setattr(sys, "argv", ["varfilter", *map(str, arguments)])
        if lines is not None:
            lines = lines.encode() if isinstance(lines, str) else lines
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        with pytest.raises(SystemExit) as caught:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return caught.value.code or 0, printed.out, printed.err

    return run


def parsed(text):
    return [json.loads(line) for line in text.splitlines()]


def assert_rows_agree(first, second):
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        assert list(one) == list(two)
        for name in one:
            if isinstance(one[name], float) and isinstance(two[name], float):
                # Two programs for the same 32-bit numbers.
                assert one[name] == pytest.approx(two[name], rel=1e-4, abs=1e-4), name
            else:
                assert one[name] == two[name], name


SAMPLES = ("--num-samples", "20", "--levels", "0.1", "0.9", "--latents")
# Twelve trajectories: a step of them is resampled, and takes no longer to compile than one of 64.
OPTIONS = (*SAMPLES, "--num-particles", "12")
FILLED = (*OPTIONS, "--fill-gaps")


@pytest.fixture
def from_file(world, varfilter):
    code, out, err = varfilter("filter", world / "run", world / "new.csv", *FILLED)
    assert (code, err) == (0, "")
    return parsed(out)


def test_lines_give_the_rows_of_the_file(world, varfilter, from_file):
    # `from_file` ran without the training data: the fixture deleted them.
    lines = (world / "new.jsonl").read_text()
    code, out, err = varfilter("filter", world / "run", "-", *FILLED, lines=lines)
    assert (code, err) == (0, "")
    assert_rows_agree(from_file, parsed(out))
    assert [row["pump"] for row in from_file] == ["x"] * 8 + ["y"] * 4
    assert [row["when"] for row in from_file[:8]] == [3.0 + 0.5 * t for t in range(8)]
    # The first of each is conditioned on; the one that never came is predicted all the same.
    missing = [i for i, row in enumerate(from_file) if row["surprise"] is None]
    assert missing == [0, 8]
    gap = from_file[5]
    assert gap["warm"] is None
    assert gap["is_on"] is None
    assert gap["surprise"] == 0.0
    assert from_file[3]["warm"] is None
    assert from_file[3]["is_on"] is not None
    for row in (*from_file[1:8], *from_file[9:]):
        assert row["warm_q10"] <= row["warm_q90"]
        assert 0.0 < row["is_on_mean"] < 1.0
        assert row["warm_std"] > 0.0
        assert {"z0_mean", "z1_std"} <= set(row)

    # Interleaved as they would come live: each sequence has its own belief.
    x, y = lines.splitlines()[:7], lines.splitlines()[7:]
    mixed = "\n".join([x[0], y[0], "", x[1], y[1], *x[2:], *y[2:]])
    code, out, _ = varfilter("filter", world / "run", "-", *FILLED, lines=mixed)
    rows = parsed(out)
    assert code == 0
    assert [row["pump"] for row in rows[:4]] == ["x", "y", "x", "y"]
    assert_rows_agree(from_file, sorted(rows, key=lambda row: row["pump"]))

    # Without gaps asked for, a row for each line, with the same numbers.
    code, out, err = varfilter("filter", world / "run", "-", *OPTIONS, lines=lines)
    assert (code, err) == (0, "")
    assert_rows_agree([row for row in from_file if row["when"] != 5.5], parsed(out))


@pytest.mark.parametrize("num_particles", [1, 12])
def test_the_numbers_are_those_of_run(world, varfilter, num_particles):
    words = ("--num-particles", num_particles, "--fill-gaps")
    code, out, _ = varfilter("filter", world / "run", world / "new.csv", *SAMPLES, *words)
    assert code == 0
    rows = parsed(out)
    run = Run.load(world / "run")
    model, trained, _, _ = run.trained()
    filter = VariationalFilter(trained.inference)
    if num_particles > 1:
        filter = ParticleFilter(trained.inference, num_particles, resample_below=0.5)
        model = Widened(model, 1.1)  # of tables
    xs = run.template.observations(run.template.schema.read(world / "new.csv").rows[0])
    # The program of the forecasts too, with their padding.
    padded = np.concatenate([xs[1:], np.full((57, 2), np.nan, np.float32)])
    key, mask = jax.random.key(0), np.arange(64) < 7
    belief = eqx.filter_jit(start)(filter, model, xs[0], key)
    _, filtered = vf.run(filter, model, padded, key, mask=mask, belief=belief)
    filtered = jax.tree.map(lambda leaf: leaf[:7], filtered)
    surprise = [row["surprise"] for row in rows[1:8]]
    np.testing.assert_allclose(surprise, -filtered.bound, rtol=1e-4, atol=1e-5)
    # Step by step: the moments of particles are over their first axis.
    moments = jax.vmap(lambda q: (q.mean, q.variance))(filtered.posterior)
    for part, expected in zip(("mean", "std"), (moments[0], moments[1] ** 0.5), strict=True):
        found = [row[f"z1_{part}"] for row in rows[1:8]]
        np.testing.assert_allclose(found, expected[:, 1], rtol=1e-4, atol=1e-5)


def test_a_forecast_goes_on_where_the_data_end(world, varfilter, tmp_path):
    words = ("forecast", world / "run", world / "new.csv", "--horizon", "3")
    code, out, err = varfilter(*words, "--num-samples", "30")
    assert code == 0
    # It was trained for a moment, which a forecast repeats; and there is nothing to weigh it by.
    naive, alone = err.splitlines()
    assert naive.startswith("The model is no better than a naive predictor")
    assert alone.startswith("Forecasts are the model's alone, and not pooled with its references")
    rows = parsed(out)
    assert [(row["pump"], row["step"]) for row in rows] == [
        (name, step) for name in "xy" for step in (1, 2, 3)
    ]
    assert [row["when"] for row in rows] == [7.0, 7.5, 8.0, 2.0, 2.5, 3.0]
    for row in rows:
        assert row["warm_q05"] <= row["warm_q50"] <= row["warm_q95"]
        assert 10.0 < row["warm_mean"] < 30.0
    words = ("forecast", world / "run", "-", "--horizon", "3", "--num-samples", "30")
    out = tmp_path / "ahead.jsonl"
    lines = (world / "new.jsonl").read_text()
    assert varfilter(*words, "--out", out, lines=lines)[0] == 0
    assert_rows_agree(rows, parsed(out.read_text()))


ABSURD = (2e6, -2e6, 1e19, -1e19, 1e30, 3e38, -3e38, 1e300)


def test_no_reading_stops_a_live_stream(world, varfilter, tmp_path):
    """Nine pumps with the same readings, but for one: missing, or absurd, a million standard
    deviations (of 2 degrees) and more. 1e300 is no 32-bit number; it counts as the largest."""
    rng = np.random.default_rng(1)
    warm, is_on = np.round(20.0 + rng.normal(0.0, 2.0, 58), 3), rng.integers(0, 2, 58)
    lines, text = [], ["pump,when,is_on,warm"]
    for name, absurd in (("clean", None), *((f"{value:g}", value) for value in ABSURD)):
        for t in range(58):
            reading = absurd if t == 7 else float(warm[t])
            on = None if t == 7 and absurd is None else int(is_on[t])
            line = {"pump": name, "when": t * 0.5, "is_on": on, "warm": reading}
            lines.append(json.dumps(line))
            text.append(",".join("" if v is None else str(v) for v in line.values()))
    words = ("filter", world / "run", "-", *OPTIONS)
    code, out, err = varfilter(*words, lines="\n".join(lines))
    assert code == 0, err
    assert all("outside of the training data" in line for line in err.splitlines())
    assert "NaN" not in out
    assert "Infinity" not in out
    rows = parsed(out)
    pumps = {
        name: [row for row in rows if row["pump"] == name] for name in {r["pump"] for r in rows}
    }
    assert len(pumps) == 1 + len(ABSURD)
    never = pumps.pop("clean")[-1]
    for name, found in pumps.items():
        # The first step is given; nothing else is missing of any row, that of the outlier included.
        assert all(value is not None for row in found[1:] for value in row.values()), name
        surprises = [row["surprise"] for row in found[1:]]
        assert np.argmax(surprises) == 6, name
        # Fifty readings later, a twentieth of the spread of a prediction at the most.
        for column in ("warm", "is_on"):
            off = abs(found[-1][f"{column}_mean"] - never[f"{column}_mean"])
            assert off <= 0.05 * never[f"{column}_std"], name
            spread = found[-1][f"{column}_std"]
            assert spread == pytest.approx(never[f"{column}_std"], rel=0.05), name
    at = [pumps[f"{value:g}"][7]["surprise"] for value in (2e6, 1e19, 1e30, 3e38)]
    assert at == sorted(set(at))
    # A file says the same.
    path = tmp_path / "absurd.csv"
    path.write_text("\n".join(text) + "\n")
    code, out, err = varfilter("filter", world / "run", path, *OPTIONS)
    assert code == 0
    assert all("outside of the training data" in line for line in err.splitlines())
    by_name = sorted(parsed(out), key=lambda row: (row["pump"], row["when"]))
    assert_rows_agree(sorted(rows, key=lambda row: (row["pump"], row["when"])), by_name)


BAD = {
    "{warm: 1}": "is not JSON",
    "[1, 2]": "must be an object",
    '{"wrm": 3}': "none of the columns is_on, warm; it has 'wrm'",
    '{"warm": "hot"}': '"hot"\' in column `warm`',
    '{"warm": Infinity}': "in column `warm`",
    '{"is_on": 2}': "of the kind binary, with 0 and 1",
    '{"warm": 1, "pump": null}': "name of its sequence",
    '{"warm": 1}': "lacks column `pump`, the name of its sequence",
    "{}": "none of the columns is_on, warm; it is empty",
    '{"warm": 1, "pump": "x", "when": "noon"}': "must be a number",
    '{"warm": 1, "pump": "x", "when": 3.1}': "has 3.1 in column `when`, which is before the 3.5",
    '{"warm": 1, "pump": "x", "when": 3.6}': "has 3.6 in column `when`, which falls on the step of",
    '{"warm": 1, "pump": "x", "when": 1e9}': "give a larger `--longest-gap`",
}


def test_a_bad_line_may_be_the_last_one(world, varfilter, tmp_path):
    good = (world / "new.jsonl").read_text().splitlines()
    lines = "\n".join([*good[:2], "{warm: 1}", *good[2:]])
    out = tmp_path / "rows.csv"
    words = ("filter", world / "run", "-", *OPTIONS, "--out", out)
    code, _, err = varfilter(*words, "--stop-on-bad-line", lines=lines)
    assert code == 2
    assert err.startswith("Line 3 of standard input is not JSON")
    assert "--stop-on-bad-line" in err
    assert len(out.read_text().splitlines()) == 3  # the names, and what came before


def test_bad_lines_are_left_out(world, varfilter):
    good = (world / "new.jsonl").read_text().splitlines()
    lines = "\n".join([*good[:2], *BAD, *good[2:]]).encode() + b'\n{"warm": "\xff"}\n'
    words = ("filter", world / "run", "-", *OPTIONS)
    code, out, err = varfilter(*words, lines=lines)
    assert code == 2  # what came was filtered, and not all was good
    *named, last = err.splitlines()
    assert last == f"{len(BAD) + 1} of {len(BAD) + 12} lines were bad, and left out."
    for number, (line, word) in enumerate(zip(named[:-1], BAD.values(), strict=True), start=3):
        assert line.startswith(f"Line {number} of standard input ")
        assert word in line
        assert line.endswith(".")
    code, alone, _ = varfilter(*words, lines="\n".join(good))
    assert code == 0
    assert parsed(out) == parsed(alone)


def test_two_lines_on_a_step_are_one_observation(world, varfilter):
    """Their cells together give the surprise and the belief of one line that has them all."""
    line = {"pump": "x", "when": 3.0, "warm": 20.0, "is_on": 1}
    begin = [line | {"when": 3.0 + 0.5 * t, "warm": 20.0 + t} for t in range(3)]
    whole = line | {"when": 4.5}
    parts = [{"pump": "x", "when": 4.5, "warm": 20.0}, {"pump": "x", "when": 4.6, "is_on": 1}]
    after = line | {"when": 5.0}

    def rows(*lines):
        told = "\n".join(map(json.dumps, lines))
        code, out, err = varfilter("filter", world / "run", "-", *OPTIONS, lines=told)
        assert (code, err) == (0, "")
        return parsed(out)

    one, two = rows(*begin, whole, after), rows(*begin, *parts, after)
    assert [row["when"] for row in two] == [3.0, 3.5, 4.0, 4.5, 4.6, 5.0]
    assert_rows_agree(one[4:], two[5:])
    own = {"when": 4.6, "warm": None, "warm_surprise": None}
    assert_rows_agree([one[3] | own], [two[4]])
    # Of a first step, too, in either order.
    first = [{"pump": "x", "when": 3.0, "is_on": 1}, {"pump": "x", "when": 3.1, "warm": 20.0}]
    assert_rows_agree(one[1:], rows(*first, *begin[1:], whole, after)[2:])


def test_rows_come_back_in_the_order_and_number_of_the_table(world, varfilter, tmp_path):
    header, *rows = (world / "new.csv").read_text().splitlines()
    words = ("filter", world / "run")
    _, out, _ = varfilter(*words, world / "new.csv", *OPTIONS)
    expected = parsed(out)
    assert [f"{row['pump']},{row['when']}" for row in expected] == [
        row.rsplit(",", 3)[0] for row in rows
    ]
    order = np.random.default_rng(2).permutation(len(rows))
    path = tmp_path / "mixed.csv"
    path.write_text("\n".join([header, *(rows[i] for i in order)]) + "\n")
    _, out, _ = varfilter(*words, path, *OPTIONS)
    assert parsed(out) == [expected[i] for i in order]
    # Two rows on a step: both come back, each with its own cells; the one that lost a value was
    # not judged.
    path.write_text("\n".join([header, *rows[:2], "x,3.6,,21,fine", *rows[2:]]) + "\n")
    _, out, _ = varfilter(*words, path, *OPTIONS)
    found = parsed(out)
    assert len(found) == len(rows) + 1
    assert [(row["when"], row["warm"]) for row in found[1:3]] == [
        (3.5, expected[1]["warm"]), (3.6, 21.0),
    ]  # fmt: skip
    assert found[2]["is_on"] is None
    assert (found[1]["surprise"], found[1]["warm_surprise"]) == (None, None)
    assert found[2]["surprise"] != expected[1]["surprise"]
    assert found[2]["is_on_surprise"] is None


def test_a_time_far_ahead_is_not_filtered_through(world, varfilter):
    good = (world / "new.jsonl").read_text().splitlines()[:3]
    far = {"pump": "x", "when": 20_000.0, "is_on": 1, "warm": 20.0}
    words = ("filter", world / "run", "-", *OPTIONS)
    # A wrong time is left out; with a second line it was none, and the sequence begins anew.
    code, out, err = varfilter(*words, lines="\n".join([*good[:2], json.dumps(far), good[2]]))
    assert code == 2
    assert "39,993 steps after the line before" in err
    assert [row["when"] for row in parsed(out)] == [3.0, 3.5, 4.0]
    late = [far | {"when": 20_000.0 + 0.5 * t} for t in range(3)]
    lines = "\n".join([*good, *map(json.dumps, late)])
    code, out, err = varfilter(*words, lines=lines)
    assert code == 2
    assert "begins anew" in err.splitlines()[1]
    rows = parsed(out)
    assert [row["when"] for row in rows] == [3.0, 3.5, 4.0, 20_000.5, 20_001.0]
    assert rows[3]["surprise"] is None
    # Asked for, a gap is filtered through, and no row of it is written.
    near = json.dumps(far | {"when": 24.0})
    for option, num_rows in ((("--longest-gap", 30), 3), (("--longest-gap", 39), 4)):
        code, out, _ = varfilter(*words, *option, lines="\n".join([*good, near]))
        assert len(parsed(out)) == num_rows
    assert "`--longest-gap`" in varfilter(*words, "--longest-gap", 0, lines="")[2]


def test_refusals_are_a_line_and_exit_code_2(world, varfilter, tmp_path):
    run, new = world / "run", world / "new.csv"
    other = tmp_path / "other.csv"
    other.write_text("pump,when,hot\nx,0,1\nx,0.5,2\n")
    for words, said in [
        (("filter", run, other), "lacks the columns 'is_on', 'warm'"),
        (("filter", run, tmp_path / "none.csv"), "no such file"),
        (("filter", tmp_path, new), "not the folder of a run"),
        (("filter", run, new, "--out", tmp_path / "x.txt"), "must end in .jsonl"),
        (("filter", run, new, "--out", tmp_path / "none" / "x.csv"), "no folder"),
        (("filter", run, new, "--seed", "-1"), "`--seed`"),
        (("filter", run, new, "--num-samples", "0"), "`--num-samples`"),
        (("filter", run, new, "--num-particles", "0"), "`--num-particles`"),
        (("forecast", run, new, "--horizon", "1", "--num-particles", "-3"), "`--num-particles`"),
        (("filter", run, new, "--levels", "5"), "`--levels`"),
        (("filter", run, new, "--alarm-rate", "1"), "`--alarm-rate`"),
        (("forecast", run, new, "--horizon", "0"), "`--horizon`"),
        (("forecast", run, other, "--horizon", "1"), "lacks the columns"),
        (("sample", run, "--out", tmp_path / "x.mid"), "must end in one of .csv"),
        (("sample", tmp_path / "none"), "does not exist"),
        (("sample", run, "--num-steps", "0"), "`--num-steps`"),
    ]:
        code, out, err = varfilter(*words)
        assert (code, out) == (2, ""), words
        assert said in err, err
        assert err.count("\n") == 1, err
        assert err.endswith(".\n"), err


def test_sampled_tables_are_read_back(world, varfilter, tmp_path):
    out = tmp_path / "s.csv"
    words = ("sample", world / "run", "--num-steps", "5", "--num-sequences", "2", "--out", out)
    code, printed, _ = varfilter(*words)
    assert (code, printed) == (0, f"{out}\n")
    header, *rows = out.read_text().splitlines()
    assert header == "pump,when,is_on,warm"
    assert [row.split(",")[0] for row in rows] == ["1"] * 5 + ["2"] * 5
    assert [row.split(",")[1] for row in rows[:3]] == ["0.0", "0.5", "1.0"]
    run = Run.load(world / "run")
    xs = np.stack([sample.xs for sample in sample_run(run, 5, 2)])
    values = [[float(cell) for cell in row.split(",")[2:]] for row in rows]
    np.testing.assert_allclose(
        np.reshape(values, (2, 5, 2)), run.template.scaling.restore(xs), rtol=1e-5
    )
    assert not np.array_equal(xs[0], xs[1])


def test_what_goes_on_from_a_table_of_one_sequence_needs_no_name(varfilter, tmp_path):
    """It was called 0, in a column that the table does not have, and in what was said."""
    rng = np.random.default_rng(0)
    lines = "\n".join(f"{value:.3f}" for value in rng.normal(size=80))
    (tmp_path / "heat.csv").write_text(f"heat\n{lines}\n")
    source = source_of(tmp_path / "heat.csv")
    sizes = TableSizes(latent_size=2, hidden_size=3)
    run = Run.begin(tmp_path / "run", replace(own_experiment(source), model=sizes), load(source))
    built = run.experiment.build(run.dataset)
    run.keep_best(Trained(built.model, built.filter, 1, None))
    out = tmp_path / "on.csv"
    words = ("sample", run.folder, "--start", tmp_path / "heat.csv", "--num-steps", 2)
    words += ("--num-particles", 2, "--only-new", "--out", out)
    code, _, err = varfilter(*map(str, words))
    assert (code, out.read_text().splitlines()[0]) == (0, "time,heat")
    assert "heat: 2 steps that would follow its 80." in err
    assert varfilter(*map(str, words), "--num-sequences", "2")[0] == 0
    _, *rows = out.read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["1", "1", "2", "2"]


# Other media: a step or two each, with parameters as they were drawn.


def begun(folder, dataset, source, model):
    """A run that was never trained."""
    run = Run.begin(folder, experiment("other", source, model), dataset)
    built = run.experiment.build(dataset)
    run.keep_best(Trained(built.model, built.filter, 1, None))
    return run


def alike(rows):
    ragged = Ragged.of([rows])
    return {"train": ragged, "valid": ragged, "test": ragged}


def test_music(varfilter, tmp_path):
    roll = np.zeros((6, 88), np.uint8)
    roll[np.arange(6), 30 + np.arange(6)] = 1
    dataset = Dataset("songs", **alike(roll), family=Family(Bernoulli))
    begun(tmp_path / "run", dataset, MusicSource("songs", steps_per_beat=2.0), SMALL)
    write_midi(roll, tmp_path / "song.mid")
    words = ("filter", tmp_path / "run", tmp_path / "song.mid", "--num-samples", "9")
    code, out, err = varfilter(*words)
    assert (code, err) == (0, "")
    rows = parsed(out)
    # Two steps a beat, and a step of the file is a beat.
    assert [row["notes"] for row in rows] == [1] * 12
    assert rows[0]["prediction"] is None
    assert len(rows[1]["prediction"]) == 88
    assert rows[5]["sequence"] == "song"
    out = tmp_path / "new.mid"
    assert varfilter("sample", tmp_path / "run", "--num-steps", "4", "--out", out)[0] == 0
    assert read_midi(out).shape == (4, 88)
    code, _, err = varfilter("filter", tmp_path / "run", "-", lines="")
    assert code == 2
    assert "cannot be read from lines" in err
    code, _, err = varfilter("filter", tmp_path / "run", __file__)
    assert code == 2
    assert err.count("\n") == 1


def test_sound(varfilter, tmp_path):
    samples = np.random.default_rng(0).normal(0.0, 900.0, 85).astype(np.int16)
    family = Family(DiscretizedNormal, width=1 / 900)
    dataset = Dataset(
        "sounds", **alike(samples), family=family, scaling=Scaling(0.0, 900.0), rows_per_step=20,
        rate=8000.0,
    )  # fmt: skip
    run = begun(tmp_path / "run", dataset, SoundSource("sounds"), SMALLEST)
    write_wav(samples, tmp_path / "a.wav", 8000)
    rows = list(filter_data(run, str(tmp_path / "a.wav"), num_samples=3))
    assert [row["time"] for row in rows] == [0.0, 0.0025, 0.005, 0.0075]
    assert rows[1]["prediction"].values.shape == (20,)
    words = ("sample", tmp_path / "run", "--num-sequences", "2", "--num-steps", "3")
    code, out, _ = varfilter(*words, "--out", tmp_path / "s.wav")
    assert code == 0
    assert out.split() == [str(tmp_path / f"s-{i}.wav") for i in (1, 2)]
    sound = read_audio(tmp_path / "s-2.wav")
    assert len(sound.samples) == 60
    assert sound.rate == 8000


def test_film(varfilter, tmp_path):
    images = pytest.importorskip("PIL.Image")
    frames = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8), np.uint8)
    family = Family(DiscretizedNormal, width=1 / 255, low=0.0, high=1.0)
    dataset = Dataset("films", **alike(frames), family=family, scaling=Scaling(0.0, 255.0))
    begun(tmp_path / "run", dataset, VideoSource("films"), SMALLEST)
    (tmp_path / "frames").mkdir()
    for i, frame in enumerate(frames):
        images.fromarray(frame[0]).save(tmp_path / "frames" / f"{i}.png")
    out = tmp_path / "film.npz"
    words = ("filter", tmp_path / "run", tmp_path / "frames", "--out", out, "--num-samples", "2")
    code, printed, err = varfilter(*words)
    assert (code, printed, err) == (0, "", f"3 rows written to {out}\n")
    with np.load(out) as found:
        assert found["prediction"].shape == (3, 1, 8, 8)
        assert np.isnan(found["surprise"][0])
        assert np.isfinite(found["surprise"][1:]).all()
    out = tmp_path / "new.gif"
    assert varfilter("sample", tmp_path / "run", "--num-steps", "3", "--out", out)[0] == 0
    with images.open(out) as film:
        assert film.size == (128, 128)


# The estimator.


def test_a_table_filter_is_a_run(world, tmp_path):
    polars = pytest.importorskip("polars")
    new = polars.read_csv(world / "new.csv")

    def choose(source):
        return replace(experiment("pumps", source), seed=5)

    fitted = TableFilter(sequence="pump", time="when", choose=choose, num_epochs=1)
    with pytest.raises(RuntimeError, match="not fitted"):
        fitted.filter(new)
    frame = polars.DataFrame(readings())
    fitted.fit(frame)
    assert fitted.run.experiment.data.source == "<frame>"
    assert fitted.run.experiment.seed == 0
    with pytest.raises(ValueError, match="cannot be read again"):
        _ = fitted.run.dataset
    options = {"num_samples": 20, "num_particles": 12, "levels": (0.1, 0.9), "latents": True}
    found = fitted.filter(new, **options)
    assert isinstance(found, polars.DataFrame)
    # The same data, settings and seed as the run of the other tests.
    rows = list(filter_data(Run.load(world / "run"), world / "new.csv", **options))
    assert found.columns == list(rows[0])
    surprise = [row["surprise"] for row in rows]
    np.testing.assert_allclose(found["surprise"], np.array(surprise), rtol=1e-4, atol=1e-5)
    ahead = fitted.forecast(3, num_samples=30)
    assert ahead["when"].to_list() == [30.0, 30.5, 31.0] * 4

    fitted.save(tmp_path / "kept")
    loaded = TableFilter.load(tmp_path / "kept")
    again = loaded.filter(new.to_dict(as_series=False), **options)
    np.testing.assert_array_equal(again["surprise"], found["surprise"])
    with pytest.raises(ValueError, match="Give the table"):
        loaded.forecast(2)
    with pytest.raises(FileExistsError, match="new folder"):
        fitted.save(tmp_path / "kept")


# Many trajectories.


def test_a_run_is_applied_with_the_trajectories_of_its_medium(world):
    run = Run.load(world / "run")
    trained = run.trained().filter
    assert run.medium.num_particles == 256
    default = apply_run(run).filter
    assert isinstance(default, ParticleFilter)
    assert (default.num_particles, default.resample_below) == (256, 0.5)
    assert eqx.tree_equal(default.inference, trained.inference)
    # The same filter has the same bits: one trajectory is the paper's.
    assert isinstance(trained, VariationalFilter)
    assert eqx.tree_equal(apply_run(run, num_particles=1).filter, trained)
    # Whatever it was trained with.
    particles = ParticleFilter(trained.inference, 3, resample_below=0.0)
    assert eqx.tree_equal(applied_filter(particles, 256), default)
    assert eqx.tree_equal(applied_filter(particles, 1), trained)


def test_every_function_takes_the_number_of_trajectories(world):
    run, new = Run.load(world / "run"), world / "new.csv"
    loaded = TableFilter.load(world / "run")
    options = {"num_samples": 20, "num_particles": 12}
    by_hand = [row["surprise"] for row in filter_data(run, new, **options)]
    np.testing.assert_array_equal(loaded.filter(new, **options)["surprise"], by_hand)
    ahead = [row["warm_mean"] for row in forecast_data(run, new, 2, **options)]
    np.testing.assert_array_equal(loaded.forecast(2, new, **options)["warm_mean"], ahead)
    alone = options | {"num_particles": 1}
    assert [row["surprise"] for row in filter_data(run, new, **alone)][1:8] != by_hand[1:8]
    assert [row["warm_mean"] for row in forecast_data(run, new, 2, **alone)] != ahead
    for wrong in (0, -2, True):
        with pytest.raises(ValueError, match="`num_particles`"):
            filter_data(run, new, num_particles=wrong)
        with pytest.raises(ValueError, match="`num_particles`"):
            forecast_data(run, new, 2, num_particles=wrong)


def test_a_band_in_a_gap_has_what_one_trajectory_takes_for_known(world, tmp_path):
    """Var[x] = E[Var[x | past]] + Var[E[x | past]]: one sampled past leaves the second part out."""
    run = Run.load(shutil.copytree(world / "run", tmp_path / "run"))
    # Parameters as drawn hardly listen to the latents: so larger ones, as if it had learned.
    trained = run.trained()
    large = jax.tree.map(lambda leaf: 3 * leaf, eqx.filter(trained.model, eqx.is_inexact_array))
    run.keep_best(trained._replace(model=eqx.combine(large, trained.model)))
    gap = np.full(20, np.nan)
    new = {
        "pump": np.repeat("x", 24),
        "when": np.arange(24) * 0.5,
        "is_on": np.concatenate([[1.0, 0.0, 1.0], gap, [1.0]]),
        "warm": np.concatenate([[20.0, 22.0, 19.0], gap, [21.0]]),
    }

    def widths(num_particles, seed):
        rows = filter_data(
            run, new, seed=seed, num_particles=num_particles, levels=(0.05, 0.95), num_samples=128
        )
        inside = list(rows)[3:23]
        return [(row["warm_std"] ** 2, row["warm_q95"] - row["warm_q05"]) for row in inside]

    # The pasts that one trajectory may have, each with its own band.
    alone = np.array([widths(1, seed) for seed in range(16)]).mean(axis=(0, 1))
    many = np.array(widths(64, 0)).mean(axis=0)
    # The averages of twenty bands and variances, of 128 draws each, are right to some percent:
    # a variance of 128 draws errs by sqrt(2 / 127) = 13%, the mean of twenty by 3%.
    assert (many > 1.2 * alone).all()
