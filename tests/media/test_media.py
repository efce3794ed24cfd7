"""What the media write, read back: names, units and times of rows; music, sound, video, tables."""

import csv
import datetime as dt
import json
import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from PIL import Image

import varfilter as vf
from disks import full_disk
from plants import plant
from refusals import refuses
from varfilter.data import (
    Dataset,
    Family,
    Ragged,
    Scaling,
    audio,
    read_audio,
    read_midi,
    read_table,
    read_video,
    video,
)
from varfilter.data import rolls as rolls_reader
from varfilter.distributions import Bernoulli, DiscretizedNormal, Mixture, Normal, Particles
from varfilter.media import (
    MEDIA,
    Vector,
    forecast_rows,
    medium_of,
    music,
    step_rows,
    write_rows,
    write_samples,
)
from varfilter.media.rows import restored
from varfilter.simulation import Forecast

HOUR = np.timedelta64(3600, "s")


def dataset(values, family, *, scaling=None, **more):
    ragged = Ragged.of([np.asarray(values)])
    return Dataset("made", ragged, ragged, ragged, family, scaling or Scaling(), **more)


def rolls(num_steps=4, **more):
    values = np.random.default_rng(0).integers(0, 2, (num_steps, 88), np.uint8)
    return dataset(values, Family(Bernoulli), **more)


def speech(num_samples=40):
    values = np.random.default_rng(0).integers(-500, 500, num_samples, np.int16)
    family = Family(DiscretizedNormal, width=1 / 250)
    return dataset(values, family, scaling=Scaling(3.0, 250.0), rows_per_step=10, rate=8000.0)


def film(shape, num_frames=5, rate=25.0):
    values = np.random.default_rng(0).integers(0, 256, (num_frames, *shape), np.uint8)
    family = Family(DiscretizedNormal, width=1 / 255, low=0.0, high=1.0)
    return dataset(values, family, scaling=Scaling(0.0, 255.0), rate=rate)


def filtered(prediction, bound, posterior=None):
    """As `run` gives it: a step of it, over a first axis of time."""
    return jax.vmap(lambda *parts: vf.Filtered(None, *parts))(
        posterior, prediction, jnp.asarray(bound)
    )


def read_json(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_steps_of_a_table_have_its_names_units_and_times(tmp_path):
    made = read_table(plant())
    rows, times = made.valid[0], made.times["valid"][0]
    xs = made.observations(rows)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(5, 4)).astype(np.float32)
    log_vars = rng.normal(size=(5, 4)).astype(np.float32)
    bound = rng.normal(size=5).astype(np.float32)
    latent = Normal(rng.normal(size=(5, 2)), rng.normal(size=(5, 2)))
    result = filtered(Normal(means, log_vars), bound, latent)
    path = tmp_path / "steps.parquet"
    write_rows(step_rows(made, rows, result, sequence="north", times=times, latents=True), path)
    frame = pl.read_parquet(path)
    parts = [f"{c}{part}" for c in made.columns for part in ("", "_mean", "_std")]
    latents = ["z0_mean", "z0_std", "z1_mean", "z1_std"]
    assert frame.columns == ["sequence", "time", *parts, "surprise", *latents]
    assert set(frame["sequence"]) == {"north"}
    np.testing.assert_array_equal(frame["time"].to_numpy(), times)
    # float32 values a little after the offset and the scale of each column.
    near = {"rtol": 1e-5, "atol": 1e-5}
    for i, name in enumerate(made.columns):
        np.testing.assert_array_equal(frame[name].to_numpy(), rows[:, i])
        mean, std = frame[f"{name}_mean"].to_numpy(), frame[f"{name}_std"].to_numpy()
        # The same distance from the mean, in standard deviations, in either unit.
        expected = (xs[1:, i] - means[:, i]) / np.exp(0.5 * log_vars[:, i])
        np.testing.assert_allclose((rows[1:, i] - mean[1:]) / std[1:], expected, rtol=1e-3)
        np.testing.assert_allclose(mean[1:], made.by_column(means)[name], **near)
    # The first step was conditioned on: there is no prediction of it.
    assert frame.head(1).null_count().select(pl.exclude(*made.columns)).row(0) == (
        (0, 0) + 13 * (1,)
    )
    np.testing.assert_array_equal(frame["surprise"].to_numpy()[1:], -bound)
    np.testing.assert_array_equal(frame["z1_mean"].to_numpy()[1:], np.asarray(latent.mean)[:, 1])
    np.testing.assert_allclose(frame["z0_std"].to_numpy()[1:], latent.std[:, 0], rtol=1e-6)
    # As text they are as short as they were: 20.123 and not 20.12299919128418.
    write_rows(step_rows(made, rows, result), tmp_path / "steps.csv")
    given = plant()["warm"][-12:-6]
    assert [float(row["warm"]) for row in read_csv(tmp_path / "steps.csv")] == given.tolist()


def test_a_step_of_a_stream_is_a_row_of_the_sequence():
    made = read_table(plant())
    rows = made.test[0]
    prediction = Normal(np.ones((6, 4)), np.zeros((6, 4)))
    result = filtered(prediction, jnp.arange(6.0), prediction)
    whole = list(step_rows(made, rows, result, times=np.arange(6) * HOUR, latents=True))
    one = jax.tree.map(lambda leaf: leaf[4], result)
    one = jax.tree.map(lambda leaf: leaf[None], one)
    (row,) = step_rows(made, rows[4:5], one, times=[4 * HOUR], latents=True)
    assert row == whole[4]
    assert whole[0]["surprise"] == 0.0  # as many predictions as rows: none was conditioned on
    assert len(whole) == 6


def test_names_of_the_user_stay(tmp_path):
    columns = ("surprise", "x", "x_mean", "time")
    made = dataset(np.zeros((2, 4), np.float32), Family(Normal), columns=columns)
    rows = list(step_rows(made, made.train[0], filtered(Normal(*np.ones((2, 2, 4))), np.zeros(2))))
    assert list(rows[0]) == [
        "sequence", "time_",
        "surprise", "surprise_mean", "surprise_std", "x", "x_mean_", "x_std",
        "x_mean", "x_mean_mean", "x_mean_std", "time", "time_mean", "time_std", "surprise_",
    ]  # fmt: skip


def test_steps_of_music(tmp_path):
    made = rolls(3)
    logits = np.random.default_rng(1).normal(size=(2, 88)).astype(np.float32)
    result = filtered(Bernoulli(logits), np.float32([-1.5, -2.0]))
    probabilities = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    for ending in (".jsonl", ".csv"):
        write_rows(step_rows(made, made.train[0], result), tmp_path / f"a{ending}")
    rows = read_json(tmp_path / "a.jsonl")
    assert [row["surprise"] for row in rows] == [None, 1.5, 2.0]
    assert [row["time"] for row in rows] == [0, 1, 2]
    assert [row["notes"] for row in rows] == made.train[0].sum(axis=1).tolist()
    assert rows[0]["prediction"] is rows[0]["expected_notes"] is None
    predicted = [row["prediction"] for row in rows[1:]]
    np.testing.assert_allclose(predicted, probabilities, rtol=1e-5)
    expected = [row["expected_notes"] for row in rows[1:]]
    np.testing.assert_allclose(expected, probabilities.sum(axis=1), rtol=1e-5)
    text = read_csv(tmp_path / "a.csv")
    assert [key for key in text[0] if "note" in key][-1] == "prediction_note108"
    assert float(text[2]["prediction_note21"]) == predicted[1][0]


def test_steps_of_speech_and_film_are_vectors_in_their_units(tmp_path):
    made = speech()
    means = np.random.default_rng(1).normal(size=(3, 10)).astype(np.float32)
    result = filtered(Normal(means, np.full((3, 10), np.log(4.0), np.float32)), np.zeros(3))
    write_rows(step_rows(made, made.train[0], result), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(arrays["time"], np.arange(4) * 10 / 8000)
        # 2 of the model's standard deviations of 250 levels, and an offset of 3.
        np.testing.assert_allclose(arrays["prediction"][1:], 250 * means + 3, rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(arrays["prediction_std"][1:], 500.0, rtol=1e-6)
        assert np.isnan(arrays["prediction"][0]).all()
    images = film((1, 8, 8))
    zeros = np.zeros((4, 1, 8, 8))
    rows = list(step_rows(images, images.train[0], filtered(Normal(zeros, zeros), np.zeros(4))))
    write_rows(rows, tmp_path / "a.jsonl")
    assert np.shape(read_json(tmp_path / "a.jsonl")[1]["prediction"]) == (1, 8, 8)
    wide = film((1, 16, 16))
    zeros = np.zeros((4, 1, 16, 16))
    rows = step_rows(wide, wide.train[0], filtered(Normal(zeros, zeros), np.zeros(4)))
    refuses(lambda: write_rows(rows, tmp_path / "b.csv"), ValueError, "256 numbers", ".npz")
    assert not (tmp_path / "b.csv").exists()


def test_mixtures_are_averaged_over_particles_and_not_over_time():
    made = dataset(np.zeros((2, 3), np.float32), Family(Normal))
    means = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    weights = np.log(np.full((2, 5), 0.2, np.float32))
    mixture = jax.vmap(Mixture)(Normal(means, np.full_like(means, -40.0)), weights)
    particles = jax.vmap(Particles)(jnp.asarray(means), jnp.asarray(weights))
    result = filtered(mixture, np.zeros(2), particles)
    for t, row in enumerate(step_rows(made, made.train[0], result, latents=True)):
        np.testing.assert_allclose(row["prediction"].values, means[t].mean(0), atol=1e-6)
        np.testing.assert_allclose(row["prediction_std"].values, means[t].std(0), rtol=1e-5)
        np.testing.assert_allclose(row["z2_std"], means[t].std(0)[2], rtol=1e-5)


def test_steps_that_do_not_fit_are_refused():
    made = read_table(plant())
    rows = made.test[0]

    def steps(num_steps, size=4):
        zeros = np.zeros((num_steps, size))
        return filtered(Normal(zeros, zeros), np.zeros(num_steps))

    refuses(lambda: step_rows(made, rows, steps(4)), ValueError, "`filtered`", "6 steps")
    refuses(lambda: step_rows(made, rows, steps(5, 3)), ValueError, "`filtered`", "(3,)", "(4,)")
    refuses(lambda: step_rows(made, rows[:, :3], steps(5)), ValueError, "`rows`", "(time, 4)")
    refuses(lambda: step_rows(made, rows, steps(5), times=[1, 2]), ValueError, "`times`", "6 steps")


# Futures


def forecast_of(samples, levels=(0.05, 0.5, 0.95)):
    samples = np.asarray(samples, np.float32)
    quantiles = np.quantile(samples, levels, axis=0).astype(np.float32)
    return Forecast(
        jnp.asarray(samples), jnp.asarray(samples.mean(0)), jnp.asarray(quantiles), levels
    )


def test_futures_of_a_table_go_on_in_its_time_and_units(tmp_path):
    made = read_table(plant())
    samples = np.random.default_rng(0).normal(size=(50, 3, 4))
    samples[..., 2] = samples[..., 2] > 0  # binary
    last = made.times["test"][0][-1]
    ahead = forecast_of(samples, (0.05, 0.975))
    write_rows(forecast_rows(made, ahead, sequence="north", last=last), tmp_path / "a.parquet")
    frame = pl.read_parquet(tmp_path / "a.parquet")
    columns = made.columns
    parts = [f"{column}_{part}" for column in columns for part in ("mean", "q05", "q97.5")]
    assert frame.columns == ["sequence", "time", "step", *parts]
    assert frame["step"].to_list() == [1, 2, 3]
    np.testing.assert_array_equal(frame["time"].to_numpy(), last + np.arange(1, 4) * HOUR)
    is_whole = dict(zip(columns, (family.has_levels for family in made.family), strict=True))
    assert sum(is_whole.values()) == 2
    for name, values in made.by_column(samples).items():
        # Quantiles move with the units: those of the samples in the user's.
        low, high = np.quantile(values, (0.05, 0.975), axis=0)
        if is_whole[name]:  # of whole numbers, and a band holds no less than it says
            low, high = np.floor(low), np.ceil(high)
        np.testing.assert_allclose(frame[f"{name}_q05"].to_numpy(), low, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(frame[f"{name}_q97.5"].to_numpy(), high, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            frame[f"{name}_mean"].to_numpy(), values.mean(0), rtol=1e-4, atol=1e-5
        )
    shares = (samples[..., 2] == 1).mean(axis=0)
    np.testing.assert_allclose(frame["valve_mean"].to_numpy(), shares, rtol=1e-6)


def test_times_of_futures_without_dates():
    made = read_table({"t": np.arange(40) * 0.1, "x": np.random.default_rng(0).normal(size=40)})
    ahead = forecast_of(np.zeros((2, 3, 1)))
    rows = list(forecast_rows(made, ahead, last=made.times["test"][0][-1]))
    assert [row["t"] for row in rows] == [4.0, 4.1, 4.2]
    plain = read_table({"x": np.random.default_rng(0).normal(size=40)})
    rows = list(forecast_rows(plain, ahead, last=plain.times["test"][0][-1]))
    assert [row["time"] for row in rows] == [40, 41, 42]
    refuses(
        lambda: forecast_rows(plain, ahead, last=np.datetime64("2024-01-01")),
        ValueError, "2024-01-01", "no step in time",
    )  # fmt: skip
    dated = forecast_rows(
        read_table(plant()), forecast_of(np.zeros((2, 1, 4))), last=dt.datetime(2024, 3, 1)
    )
    assert next(dated)["time"] == np.datetime64("2024-03-01T01:00")


def test_a_terminal_is_spared_long_vectors(capsys, monkeypatch):
    row = {"surprise": 1.5, "x": Vector(np.zeros(88)), "z": np.ones(2), "y": np.full(88, np.nan)}
    write_rows([row], None)
    whole = json.loads(capsys.readouterr().out)
    assert len(whole["x"]) == 88
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    write_rows([row], None)
    shown = json.loads(capsys.readouterr().out)
    assert shown == {**whole, "x": "88 numbers, which --out FILE or a pipe has"}


def test_futures_of_other_media():
    roll = forecast_of(np.random.default_rng(0).integers(0, 2, (9, 2, 88)))
    row = next(forecast_rows(rolls(rate=4.0), roll, last=1.5))
    assert list(row) == ["sequence", "time", "step", "expected_notes", "prediction"]
    assert row["time"] == 1.75
    np.testing.assert_allclose(row["expected_notes"], np.sum(roll.mean[0]), rtol=1e-6)
    sound = forecast_of(np.random.default_rng(0).normal(size=(9, 2, 10)))
    row = next(forecast_rows(speech(), sound))
    assert list(row)[3:] == ["prediction", "prediction_q05", "prediction_q50", "prediction_q95"]
    np.testing.assert_allclose(
        row["prediction_q50"].values, 250 * np.asarray(sound.quantiles[1, 0]) + 3, rtol=1e-5
    )
    refuses(lambda: forecast_rows(rolls(), sound), ValueError, "`forecast`", "(10,)", "(88,)")


# Recordings that a model makes up


def test_the_medium_is_told_by_the_rows():
    def name(dataset):
        return medium_of(dataset).name

    assert name(read_table(plant())) == "table"
    assert name(rolls()) == "music"
    assert name(speech()) == "sound"
    assert name(film((1, 8, 8))) == name(film((3, 9, 16))) == name(film((16, 16))) == "video"
    assert name(film((2, 16, 16))) == name(film((4, 4))) == "array"
    assert name(dataset(np.zeros((4, 88)), Family(Normal))) == "array"
    assert name(dataset(np.zeros((4, 3)), Family(Normal))) == "array"
    assert name(dataset(np.zeros((4, 3)), Family(Normal), medium="music")) == "music"
    odd = dataset(np.zeros((4, 3)), Family(Normal), medium="musik")
    refuses(lambda: medium_of(odd), ValueError, "'musik'", "Did you mean 'music'?", "register")


def test_music_is_heard_again(tmp_path):
    made = rolls(6)
    xs = made.observations(made.train[0])
    write_samples(tmp_path / "a.mid", made, [xs])
    np.testing.assert_array_equal(read_midi(tmp_path / "a.mid"), made.train[0])
    write_samples(tmp_path / "b.mid", rolls(6, rate=8.0), [xs])
    read = read_midi(tmp_path / "b.mid", seconds_per_step=0.125)
    np.testing.assert_array_equal(read, made.train[0])
    (tmp_path / "a.mid").write_bytes(b"old")
    refuses(
        lambda: write_samples(tmp_path / "a.mid", made, [xs + 0.5]), ValueError, "0 and 1 alone"
    )
    assert (tmp_path / "a.mid").read_bytes() == b"old"


def test_sound_is_heard_again_and_clipping_is_counted(tmp_path):
    made = speech()
    xs = made.observations(made.train[0])
    write_samples(tmp_path / "a.wav", made, [xs])
    sound = read_audio(tmp_path / "a.wav")
    assert sound.rate == 8000
    np.testing.assert_array_equal(sound.samples, made.train[0])
    xs[0, :3] = [1e6, -1e6, 0.0]
    with pytest.warns(UserWarning, match="^2 of 40 samples were louder"):
        write_samples(tmp_path / "a.wav", made, [xs])
    assert read_audio(tmp_path / "a.wav").samples[:3].tolist() == [32767, -32768, 3]
    before = (tmp_path / "a.wav").read_bytes()
    with full_disk():
        refuses(
            lambda: write_samples(tmp_path / "a.wav", made, [0.0 * xs]),
            OSError,
            "a.wav",
            "No space",
        )
    assert (tmp_path / "a.wav").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.wav"]


def test_films_are_seen_again(tmp_path):
    path = tmp_path / "a.gif"
    for shape in ((1, 8, 8), (60, 50)):
        made = film(shape)
        write_samples(path, made, [made.observations(made.train[0])])
        size = 128 if shape == (1, 8, 8) else 150
        with Image.open(path) as image:
            assert image.size == (size, 128 if size == 128 else 180)
            assert (image.n_frames, image.info["duration"], image.info["loop"]) == (5, 40, 0)
            for t in range(5):
                image.seek(t)
                pixels = np.asarray(image.convert("L"))[:: size // shape[-1], :: size // shape[-1]]
                np.testing.assert_array_equal(pixels, made.train[0][t].reshape(shape[-2:]))
    made = film((1, 8, 8), rate=None)
    write_samples(path, made, [made.observations(made.train[0])])
    # Whole pixels, each 16 times 16: another library finds them too.
    np.testing.assert_array_equal(read_video(path, size=128)[..., 8::16, 8::16], made.train[0])
    with Image.open(path) as image:
        assert image.info["duration"] == 100


def test_films_in_colour_and_of_any_unit(tmp_path):
    values = np.zeros((3, 3, 8, 8), np.uint8)
    values[np.arange(3), np.arange(3)] = 255  # red, green, blue
    made = dataset(values, Family(DiscretizedNormal, 1 / 255, 0.0, 1.0), scaling=Scaling(0, 255))
    write_samples(tmp_path / "a.gif", made, [made.observations(values)])
    np.testing.assert_array_equal(read_video(tmp_path / "a.gif", size=8, color=True), values)
    # Without levels of its own, a film goes from the darkest to the brightest of the data.
    heat = dataset(np.linspace(-20, 40, 192).reshape(3, 8, 8), Family(Normal))
    xs = np.full((2, 8, 8), -20.0)
    xs[1, :4], xs[1, 4:] = 10.0, 99.0
    xs[1, 0] = np.nan
    write_samples(tmp_path / "b.gif", heat, [xs])
    with Image.open(tmp_path / "b.gif") as image:
        assert np.asarray(image.convert("L")).max() == 0
        image.seek(1)
        pixels = np.asarray(image.convert("L"))
    assert (pixels[0, 0], pixels[40, 0], pixels[80, 0]) == (128, 128, 255)


def test_tables_are_read_again(tmp_path):
    made = read_table(plant())
    rows = made.train[0][8:]  # none is missing
    xs = made.observations(rows)
    write_samples(tmp_path / "a.csv", made, [xs])
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "time,warm,flow,valve,faults"
    # Counts and flags are whole.
    assert [line.split(",")[3:] for line in lines[1:]] == [
        [f"{valve:.0f}", f"{faults:.0f}"] for valve, faults in rows[:, 2:]
    ]
    again = made.schema.read(tmp_path / "a.csv")
    np.testing.assert_allclose(made.observations(again.rows[0]), xs, atol=1e-6)
    first = np.datetime64("2000-01-01T00:00", "us")  # dates like the data's, and plainly made up
    np.testing.assert_array_equal(again.times[0], first + np.arange(len(xs)) * HOUR)
    # Several sequences are one table, with a column that tells them apart.
    write_samples(tmp_path / "b.csv", made, [xs, xs[:3]])
    assert [row["sequence"] for row in read_csv(tmp_path / "b.csv")] == ["1"] * len(xs) + ["2"] * 3
    numbered = read_table({"t": np.arange(40) * 0.5, "x": np.arange(40.0) % 7 + 0.5})
    write_samples(tmp_path / "c.csv", numbered, [np.zeros((2, 1))])
    assert [row["t"] for row in read_csv(tmp_path / "c.csv")] == ["0.0", "0.5"]


def test_several_recordings_are_numbered_files(tmp_path):
    made = rolls(6)
    xs = made.observations(made.train[0])
    paths = write_samples(tmp_path / "a.mid", made, [xs, 1 - xs])
    assert [path.name for path in paths] == ["a-1.mid", "a-2.mid"]
    np.testing.assert_array_equal(read_midi(paths[1]), 1 - made.train[0])


def test_anything_may_be_arrays_and_nothing_else_than_it_is(tmp_path):
    made = speech()
    xs = made.observations(made.train[0])
    write_samples(tmp_path / "a.npz", made, [xs])
    with np.load(tmp_path / "a.npz") as arrays:
        assert arrays["time"].tolist() == [0.0, 0.00125, 0.0025, 0.00375]
        np.testing.assert_allclose(arrays["observation"].ravel(), made.train[0], atol=1e-4)
    other = dataset(np.zeros((4, 3)), Family(Normal))
    write_samples(tmp_path / "b.npz", other, [np.ones((2, 3))])
    with np.load(tmp_path / "b.npz") as arrays:
        assert arrays["observation"].tolist() == [[1.0] * 3] * 2
    for data, ending, words in ((made, ".mid", ".wav or .npz"), (other, ".csv", "end in .npz")):
        shape = (2, *data.observation_shape)
        refuses(
            lambda d=data, e=ending, s=shape: write_samples(tmp_path / f"c{e}", d, [np.zeros(s)]),
            ValueError, words, medium_of(data).name,
        )  # fmt: skip
    for wrong in (np.zeros((2, 9)), np.zeros((0, 10)), np.zeros(10)):
        refuses(
            lambda xs=wrong: write_samples(tmp_path / "c.wav", made, [xs]),
            ValueError,
            "`sequences`",
        )
    refuses(
        lambda: write_samples(tmp_path / "none" / "c.wav", made, [xs]), FileNotFoundError, "none"
    )


def test_counts_are_whole_where_they_are_but_for_rounding():
    scaling = Scaling(np.array([4.177, 4.177]), np.array([2.9, 2.9]))
    counts = np.arange(6.0)
    rows = Ragged.of([np.stack([counts, counts], axis=1)])
    families = (Family(vf.DiscretizedNormal, width=1 / 2.9), Family(vf.Normal))
    dataset = Dataset("t", rows, rows, rows, families, scaling, columns=("n", "x"))
    xs = scaling(rows.values).astype(np.float32)
    xs[5] += 0.1
    found = restored(dataset, xs)
    assert found[:5, 0].tolist() == counts[:5].tolist()
    # What lies between two counts, as a mean does, stays there; and so does what is no count.
    np.testing.assert_allclose(found[5], 5.29, rtol=1e-6)
    assert (found[:5, 1] != counts[:5]).any()
    # After an absurd reading more may be expected than there are numbers, without a word of NumPy.
    with warnings.catch_warnings(action="error"):
        found = restored(dataset, np.array([[np.inf, 3e38], [-np.inf, np.nan]], np.float32))
    assert found[:, 0].tolist() == [np.inf, -np.inf]
    assert found[0, 1] == np.inf


def test_media_and_readers_agree_on_the_endings_of_files():
    """The media name them too, since to know an ending is not to import the reader."""
    assert MEDIA["sound"].suffixes == set(audio.SUFFIXES)
    assert MEDIA["video"].suffixes == video.VIDEOS
    assert MEDIA["video"].frame_suffixes == video.IMAGES
    assert (music.LOWEST, music.NUM_KEYS) == (rolls_reader.LOWEST, rolls_reader.NUM_KEYS)
