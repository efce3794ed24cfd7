"""What a model makes up: it begins as training did, or goes on from a file."""

import shutil
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest

from refusals import refuses
from tiny_runs import chorales, keep_untrained, tiny, videos
from varfilter.data import Ragged, write_midi
from varfilter.data.midi import read_midi
from varfilter.media import load, source_of
from varfilter.runs import Run, repair_run, sample_run
from varfilter.runs.applied import apply_run
from varfilter.runs.measures import RunPredictor, measure_run
from varfilter.runs.sampling import observed_mean
from varfilter.runs.starts import STARTS, starts_of, training_starts
from varfilter.simulation import require_temperature


@pytest.fixture(scope="module")
def songs(tmp_path_factory):
    """A run on a folder of MIDI files, two steps a beat, as it was before any update."""
    folder = tmp_path_factory.mktemp("songs")
    (folder / "midi").mkdir()
    for number, song in enumerate(chorales().train):
        write_midi(song, folder / "midi" / f"{number}.mid", steps_per_beat=2)
    source = source_of(folder / "midi")
    experiment = replace(tiny("music", folder)[0], data=source)
    run = Run.begin(folder / "run", experiment, load(source))
    keep_untrained(run)
    return Run.load(folder / "run")


def firsts(run):
    dataset = run.dataset
    return {dataset.observations(rows)[0].tobytes() for rows in dataset.train}


def test_samples_begin_as_training_sequences_do(songs):
    known = firsts(songs)
    samples = sample_run(songs, 5, 4)
    assert [each.num_given for each in samples] == [1] * 4
    assert [each.xs.shape for each in samples] == [(5, 88)] * 4
    begins = [each.xs[0].tobytes() for each in samples]
    assert set(begins) <= known
    # Each of the four training songs has its turn before one comes again.
    assert len(set(begins)) == len(known)
    # The model as it was drawn has every other key down; the songs have four notes at most.
    assert samples[0].xs[0].sum() <= 4
    assert samples[0].made[0].sum() > 20
    again = sample_run(songs, 5, 4)
    np.testing.assert_array_equal(samples[3].xs, again[3].xs)
    assert sample_run(songs, 1)[0].xs.shape == (1, 88)


def test_the_starts_are_in_the_folder_and_old_runs_find_them_in_their_data(songs, tmp_path):
    shutil.copytree(songs.folder, tmp_path / "run")
    run, path = Run.load(tmp_path / "run"), tmp_path / "run" / STARTS
    kept = starts_of(run)
    assert {each.tobytes() for each in kept} == firsts(songs)
    path.unlink()
    np.testing.assert_array_equal(starts_of(Run.load(run.folder)), kept)
    assert path.exists()  # once found, they are kept
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    refuses(lambda: starts_of(run), ValueError, "damaged", "`varfilter repair")
    (done,) = repair_run(run.folder)
    assert done.startswith(f"{STARTS} was removed")
    assert not path.exists()
    assert repair_run(run.folder) == []
    # Without its data either, it begins with what the model draws, and says so.
    gone = replace(run.experiment, data=replace(run.experiment.data, source=str(tmp_path / "no")))
    lost = Run(run.folder, gone, run.record)
    with pytest.warns(UserWarning, match="has never learned how a sequence begins"):
        (sample,) = sample_run(lost, 3)
    assert (sample.num_given, sample.xs.shape) == (0, (3, 88))
    # To go on with a run keeps them too.
    Run.begin(run.folder, run.experiment, songs.dataset)
    assert path.exists()


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([3] * 100, 64), ([3] * 8, 8), ([30, 4], 34), ([200], 64)],
)
def test_a_few_of_many_and_steps_in_the_midst_of_few(lengths, expected):
    rows = np.arange(sum(lengths) * 88, dtype=np.float32).reshape(-1, 88)
    dataset = replace(chorales(), train=Ragged(rows, lengths))
    found = training_starts(dataset)
    assert found.shape == (expected, 1, 88)
    assert len(np.unique(found[:, 0, 0])) == expected
    if len(lengths) > 2:
        begins = np.cumsum([0, *lengths[:-1]])
        assert set((found[:, 0, 0] / 88).astype(int)) <= set(begins)


def test_complete_starts_come_before_those_with_gaps_and_large_ones_are_few():
    rows = np.ones((60, 88), np.float32)
    rows[::3][:15, 5] = np.nan  # the first rows of three quarters of the sequences
    dataset = replace(chorales(), train=Ragged(rows, [3] * 20))
    assert training_starts(dataset).shape == (5, 1, 88)
    large = np.zeros((90, 300, 300), np.uint8)
    frames = replace(
        videos(), train=Ragged(large, [3] * 30), valid=Ragged(large[:3], [3]),
        test=Ragged(large[:3], [3]),
    )  # fmt: skip
    assert training_starts(frames).shape == (11, 1, 300, 300)


def test_a_song_goes_on(songs):
    song = songs.folder.parent / "midi" / "2.mid"
    given = songs.template.observations(read_midi(song, steps_per_beat=2))
    one, two = sample_run(songs, 4, 2, start=song, num_particles=2)
    assert one.name == two.name == "2"
    assert one.num_given == len(given) == 24
    for each in (one, two):
        np.testing.assert_array_equal(each.xs[:24], given)
        assert each.made.shape == (4, 88)
        assert list(each.times) == list(range(28))
    assert not np.array_equal(one.made, two.made)
    # A folder: each of its songs.
    both = sample_run(songs, 2, start=song.parent, num_particles=2)
    assert [each.name for each in both] == [str(i) for i in range(6)]
    refuses(lambda: sample_run(songs, 2, start="none.mid"), FileNotFoundError, "none.mid")


def test_the_mean_has_the_number_of_notes_that_is_expected(songs):
    drawn, mean = (sample_run(songs, 9, mean=mean)[0].made for mean in (False, True))
    assert set(np.unique(mean)) == {0.0, 1.0}
    # As it was drawn, each key is down with a probability of about 1/2: 44 of them, give or take
    # 4.7 in a draw; of the mean only what the latents do to the sum of all is left.
    assert mean.sum(1).std() < drawn.sum(1).std()
    assert abs(mean.sum(1).mean() - drawn.sum(1).mean()) < 5 * 4.7 / 8**0.5


def test_below_one_the_model_is_surer_of_itself(songs):
    cold, hot = (sample_run(songs, 30, temperature=t)[0].made for t in (1e-4, 10.0))
    # What is drawn from one distribution p changes with 2 p (1 - p): 0 or 1/2.
    changes = [np.mean(x[1:] != x[:-1]) for x in (cold, hot)]
    assert changes[0] < 0.15 < 0.4 < changes[1]
    for wrong in (0, -1.0, float("nan"), float("inf"), 11):
        refuses(lambda w=wrong: sample_run(songs, 3, temperature=w), ValueError, "`temperature`")
    for wrong in (True, "hot", None):
        refuses(lambda w=wrong: require_temperature(w), ValueError, "`temperature`", repr(wrong))


def test_the_measures_of_a_run_are_of_the_filter_that_it_applies(songs):
    found = measure_run(songs, num_particles=2)
    names = [each["name"] for each in found]
    *others, made_up = names
    assert others == ["frame accuracy", "frame accuracy, most probable", "notes a step, expected"]
    # The song goes on for less than the 32 steps that are made up of long ones.
    assert made_up == "notes a step, made up"
    assert found[3]["what"].startswith("23 steps that the model draws")
    (song,) = songs.dataset.test
    assert found[2]["others"]["the data"] == pytest.approx(song[1:].sum(1).mean())
    assert found[2]["value"] > 20
    assert found[3]["others"]["the data"] == pytest.approx(song[1:].sum(1).mean())
    applied = apply_run(songs, num_particles=2)
    predictor = RunPredictor(applied, songs.dataset, "test", observed_mean(songs))
    (future,) = predictor.futures(4, 3, 2)
    assert [each.shape for each in future[:3]] == [(4, 88), (3, 88), (2, 3, 88)]
    xs = songs.dataset.observations(songs.dataset.test[0])
    np.testing.assert_array_equal(np.concatenate([future.seen, future.came]), xs[:7])
    (step,) = predictor.one_step()
    assert step.means.shape == (23, 88)


def test_a_table_goes_on_in_its_own_times_and_units(tmp_path):
    experiment, dataset = tiny("table", tmp_path)
    run = Run.begin(tmp_path / "run", experiment, dataset)
    keep_untrained(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, *others = sample_run(run, 3, start=experiment.data.source, num_particles=1)
    assert len(others) == 19
    assert (first.num_given, first.name) == (40, "p0")
    assert list(first.times) == list(range(43))
    # What is missing of the given part stays so; what is made up is whole.
    assert np.isnan(first.xs[10:14, 0]).all()
    assert np.isfinite(first.made).all()
    (mean,) = sample_run(run, 6, mean=True)
    assert set(np.unique(mean.made[:, 1])) <= {0.0, 1.0}


def test_the_variance_grows_with_the_temperature():
    """x_1 of a linear-Gaussian model: T (C P C' + R), by the noise of latent and emission."""
    import varfilter as vf
    from worlds import KEY, linear_gaussian, linear_gaussian_parameters

    model, known = linear_gaussian(), linear_gaussian_parameters()
    loading = known["loading"]
    latent = loading @ known["initial_covariance"] @ loading.T
    noise = np.diag(latent + known["noise_covariance"])
    keys = jax.random.split(KEY, 4000)
    for temperature in (0.25, 1.0, 3.0):
        options = {"temperature": temperature}
        draw = jax.jit(jax.vmap(lambda k, o=options: vf.generate(model, 1, k, **o)[0][0]))
        # A variance of n draws has a relative error of sqrt(2 / n) = 0.022.
        np.testing.assert_allclose(np.var(draw(keys), axis=0), temperature * noise, rtol=0.11)
    # The mean of the emission in place of a draw: the noise of the latent alone is left.
    draw = jax.jit(jax.vmap(lambda k: vf.generate(model, 1, k, observe=lambda e: e.mean)[0][0]))
    np.testing.assert_allclose(np.var(draw(keys), axis=0), np.diag(latent), rtol=0.11)
