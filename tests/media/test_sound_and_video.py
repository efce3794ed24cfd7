"""What sound and video are judged by, and what a page plays of them; an untrained run is enough."""

import dataclasses
import io
import math
import warnings
import wave

import av
import numpy as np
import pytest
import soundfile
from PIL import Image

from tiny_runs import sentences, videos
from varfilter import _saved
from varfilter.data import Dataset, Ragged, write_midi, write_wav
from varfilter.data.dataset import SPLITS
from varfilter.media import load, medium_named, new_sequences, source_of, write_samples
from varfilter.media.films import (
    first_frames,
    frame_measures,
    future_exhibits,
    made_up_exhibit,
    write_film,
)
from varfilter.media.measures import Futures
from varfilter.media.sound import RATE_BEFORE
from varfilter.plots.spectra import flatness, loudest_part
from varfilter.report.run_section import measure_parts
from varfilter.runs.alarms import held_sequences
from videos import write_video

SOUND, VIDEO = medium_named("sound"), medium_named("video")


class Copies:
    """A predictor whose futures are what came, with noise but for one of them."""

    num_futures = 3

    def __init__(self, dataset: Dataset):
        self.dataset = dataset

    def one_step(self):
        return iter(())

    def futures(self, begin, horizon, num_samples, *, mean=True):
        rng = np.random.default_rng(0)
        for rows in self.dataset.test:
            xs = self.dataset.observations(rows)
            came = xs[begin : begin + horizon]
            draws = came + 0.2 * rng.normal(size=(num_samples, *came.shape))
            draws[-1] = came
            if len(came) == horizon:
                yield Futures(xs[:begin], came, draws)


def test_bits_are_nats_in_other_units():
    dataset = sentences()
    (found,) = SOUND.measures(dataset, "test", Copies(dataset), {"nats": 200 * math.log(2.0) * 7.5})
    assert found.name == "bits a sample"
    assert found.value == pytest.approx(7.5)
    linear, independent = found.others.values()
    # A tone foretells itself: little more than the noise of 20 levels is left, which nobody can
    # foretell; one filter for tones of many pitches is not quite that of each.
    noise = math.log2(20 * math.sqrt(2 * math.pi * math.e))
    assert noise - 0.02 < linear < noise + 0.6
    assert independent > linear + 2
    # Without levels there are no bits.
    fine = dataclasses.replace(dataset, family=dataclasses.replace(dataset.family, width=None))
    (found,) = SOUND.measures(fine, "test", Copies(fine), {"nats": 100.0})
    assert (found.name, found.value) == ("nats a sample", pytest.approx(0.5))


def test_the_best_of_several_futures_stands_beside_the_last_frame():
    dataset = videos()
    bits, psnr, ssim = VIDEO.measures(
        dataset, "test", Copies(dataset), {"nats": 64 * math.log(2.0)}
    )
    assert (bits.name, bits.value) == ("bits a dimension", pytest.approx(1.0))
    # 24 frames: ten are seen, 14 follow. What came was among the futures.
    assert set(map(len, psnr.by_step.values())) == {14}
    assert ssim.value == pytest.approx(1.0)
    assert psnr.value > 58
    for each in (psnr, ssim):
        assert each.is_better == "higher"
        assert set(each.others) == {"mean of 3", "copy of the last frame"}
        assert all(other < each.value for other in each.others.values())
        assert len(each.errors["best of 3"]) == 14
    left_out = Copies(dataset)
    left_out.num_futures = 0
    assert frame_measures(dataset, "test", left_out) == []


@pytest.mark.parametrize(
    ("lengths", "frames"),
    [
        ([65] * 3, (10, 20)),
        ([24] * 3, (10, 14)),
        ([4, 5, 6], (2, 3)),
        # What has no future is not the middle of those that have.
        ([1, 1, 1, 8], (4, 4)),
        ([1], (0, 0)),
    ],
)
def test_frames_that_are_seen_and_predicted(lengths, frames):
    assert first_frames(np.array(lengths)) == frames


def test_videos_without_a_future_are_said_and_end_nothing():
    """Before, a page on such videos ended in a `StopIteration`."""
    whole = videos()
    short = dataclasses.replace(whole, test=Ragged.of([video[:1] for video in whole.test]))
    with pytest.warns(UserWarning, match="none of the 4 videos of the test part has two frames"):
        assert frame_measures(short, "test", Copies(short)) == []
    assert future_exhibits(short, "test", Copies(short)) == []


def test_as_many_videos_are_predicted_as_there_is_room_for_however_long_they_are():
    """Of long videos, the first used to take all the room there is; short ones took some too."""
    frames = list(videos().test)
    mixed = [frames[0][:1], np.concatenate([frames[1]] * 4), frames[2], frames[3]]
    dataset = dataclasses.replace(videos(), test=Ragged.of(mixed))
    found = list(held_sequences(dataset, "test", 64, first=24))
    assert [each.name for each in found] == ["sequence 1", "sequence 2"]
    np.testing.assert_array_equal(found[0].rows, frames[1])
    np.testing.assert_array_equal(found[1].xs, dataset.observations(frames[2]))


def test_a_page_plays_what_the_model_makes_up():
    dataset = sentences()
    noise = np.random.default_rng(0).normal(size=(160, 200)).astype(np.float32)
    shown, held_out, *made, beside = SOUND.exhibits(
        dataset, "test", Copies(dataset), lambda num_steps, number=1, mean=False: [noise] * number
    )
    assert shown.paint is not None
    assert len(made) == 3
    assert "nobody has listened" in beside.caption
    columns = beside.traits
    assert list(columns) == ["test", "made up (8)"]
    assert columns["made up (8)"]["voiced, % of what sounds"] == 0
    assert columns["test"]["voiced, % of what sounds"] > 50
    assert "this is noise" in made[0].caption
    assert "this is noise" not in held_out.caption
    with wave.open(io.BytesIO(held_out.clip.content)) as file:
        heard = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        assert file.getframerate() == 16000
    np.testing.assert_array_equal(heard, dataset.test[0])


def test_what_a_page_says_of_the_futures_of_one_video():
    """Bars and a standard error that are not there were explained, and videos came in decibels."""
    dataset = videos()
    one = dataclasses.replace(dataset, test=Ragged.of([dataset.test[0]]))
    measures = [each.as_json() for each in frame_measures(one, "test", Copies(one))]
    assert "in decibels, mean over the next" in measures[0]["what"]
    assert measures[0]["what"].endswith("of 1 video")
    shown = " ".join(measure_parts(measures))
    assert "the curve on top is that of the best of 3" in shown
    assert "Bars" not in shown
    several = [each.as_json() for each in frame_measures(dataset, "test", Copies(dataset))]
    assert "Bars" in " ".join(measure_parts(several))


def test_films_repeat_and_keep_their_pixels(tmp_path):
    dataset = videos()
    xs = dataset.observations(dataset.train[0])
    exhibit = made_up_exhibit(dataset, lambda num_steps, number=1, mean=False: [xs] * number)
    with Image.open(io.BytesIO(exhibit.clip.content)) as film:
        assert film.info["loop"] == 0
        assert film.size == (4 * 128, 128)
        assert film.n_frames == len(xs)
    write_film(tmp_path / "a.mp4", xs, 25, is_gif=False)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="gray") for frame in container.decode(stream)]
        assert stream.average_rate == 25
    assert len(frames) == len(xs)
    # The coding loses a little: some levels of 255.
    middles = np.stack(frames)[:, 8::16, 8::16].astype(float)
    assert np.abs(middles - dataset.train[0][:, 0]).mean() < 6


@pytest.mark.parametrize(("name", "rate", "shown"), [("a.gif", 1 / 3600, 1 / 600),
                                                    ("a.gif", 120.0, 50.0),
                                                    ("a.mp4", 1 / 3600, 1 / 600)])  # fmt: skip
def test_a_rate_that_films_cannot_have_is_said(name, rate, shown, tmp_path):
    """Frames an hour apart ended in an error of Pillow's, and in a film of another rate."""
    frames = np.random.default_rng(0).random((3, 16, 16))
    with pytest.warns(UserWarning, match=f"has {shown:.4g} frames a second, which is the nearest"):
        write_film(tmp_path / name, frames, rate, is_gif=name == "a.gif")
    with av.open(str(tmp_path / name)) as container:
        first, second, *_ = (frame.time for frame in container.decode(container.streams.video[0]))
    assert second - first == pytest.approx(1 / shown, rel=1e-3)


@pytest.mark.parametrize("rate", [29.97, 24.0, 30000 / 1001, 15.0, 10.0, 50.0, 7.3])
def test_a_gif_keeps_the_mean_rate(rate, tmp_path):
    """Each frame as long as the first was up to a sixth faster or slower than the data."""
    frames = np.random.default_rng(0).random((61, 16, 16))
    write_film(tmp_path / "a.gif", frames, rate, is_gif=True)
    durations = durations_of(tmp_path / "a.gif")
    assert len(durations) == 61
    # Whole hundredths, each next to what is meant; the end is the nearest to its own.
    assert all(each % 10 == 0 and each >= 20 for each in durations)
    assert all(abs(each - 1000 / rate) < 10 for each in durations)
    assert abs(sum(durations) - 61 * 1000 / rate) <= 5
    write_film(tmp_path / "one.gif", frames[:1], rate, is_gif=True)  # a film of one frame, too


def test_a_video_that_is_filtered_is_written_at_its_own_rate(tmp_path):
    dataset = videos()
    for name, rate in (("slow", 5), ("fast", 24)):
        frames = np.random.default_rng(0).integers(0, 256, (9, 16, 16), np.uint8)
        write_video(tmp_path / f"{name}.avi", frames, rate=rate)
        with warnings.catch_warnings():  # that it is not the rate of the run
            warnings.simplefilter("ignore")
            (new,) = new_sequences(dataset, source_of("weizmann"), tmp_path / f"{name}.avi")
        path = tmp_path / f"{name}.gif"
        write_samples(path, dataset, [new.xs], schemas=[new.schema])
        assert sum(durations_of(path)) == pytest.approx(9 * 1000 / rate, abs=5)
        own = dataclasses.replace(dataset, schema=new.schema)
        assert VIDEO.seconds_per_step(own) == pytest.approx(1 / rate)


def durations_of(path):
    with Image.open(path) as film:
        found = []
        for t in range(film.n_frames):
            film.seek(t)
            found.append(film.info["duration"])
    return found


@pytest.mark.parametrize(("name", "start"), [("x.gif.mp4", b"ftyp"), ("x.mp4.gif", b"GIF8")])
def test_the_last_ending_says_what_a_film_is(name, start, tmp_path):
    dataset = videos()
    xs = dataset.observations(dataset.train[0])
    (path,) = write_samples(tmp_path / name, dataset, [xs])
    assert start in path.read_bytes()[:12]


def test_flatness_tells_noise_from_tones():
    rng, times = np.random.default_rng(0), np.arange(16000) / 16000
    tone = np.sin(2 * np.pi * 440 * times)
    assert flatness(rng.normal(size=16000), 16000) > 0.9
    assert flatness(tone, 16000) < 0.01
    assert flatness(np.zeros(800), 16000) == 0.0
    quiet_then_loud = np.concatenate([0.1 * tone, tone])
    np.testing.assert_array_equal(loudest_part(quiet_then_loud, 16000), tone)


def test_a_run_of_before_reads_the_endings_that_it_began_with(tmp_path):
    for number in range(3):
        write_wav(np.arange(900) - 450 + number, tmp_path / f"{number}.wav", 8000)
    source = source_of(tmp_path)
    before = load(source)
    soundfile.write(tmp_path / "3.aiff", np.arange(900, dtype=np.int16), 8000)
    soundfile.write(tmp_path / "3.ogg", np.zeros(900), 8000)
    now = load(source)
    assert sum(len(now.split(split)) for split in SPLITS) == 5
    for old in ({"rate": 8000}, None):
        again = load(SOUND.as_recorded(dataclasses.replace(source, rate=8000), old))
        assert again.sha256() == before.sha256()
    # A run that read them goes on with them.
    again = load(SOUND.as_recorded(source, SOUND.schema_json(now)))
    assert again.sha256() == now.sha256()


def test_a_run_reads_its_sound_at_the_rate_it_began_with(tmp_path):
    for number in range(3):
        write_wav(np.arange(900) - 450 + number, tmp_path / f"{number}.wav", 8000)
    source = source_of(tmp_path)
    dataset = load(source)
    assert SOUND.schema_json(dataset) == {"rate": 8000, "fine": False}
    assert SOUND.as_recorded(source, {"rate": 8000}).rate == 8000
    # Records of before there was a rate in them are of runs that resampled to 16,000 Hz.
    assert SOUND.as_recorded(source, None).rate == RATE_BEFORE == 16000
    assert SOUND.as_recorded(dataclasses.replace(source, rate=4000), None).rate == 4000
    named = source_of("timit-sample")
    assert SOUND.as_recorded(named, None) == named
    # A new file of another rate is brought to that of the run, and it is said.
    write_wav(np.arange(900), tmp_path / "new.wav", 16000)
    with pytest.warns(UserWarning, match=r"resampled from 16,000 to 8,000 Hz, the rate of the run"):
        ((name, rows),) = SOUND.recordings(dataset, source, tmp_path / "new.wav")
    assert (name, len(rows)) == ("new", 450)


def test_a_run_of_before_reads_fine_sound_as_it_did(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    for number in range(3):
        fine = np.random.default_rng(number).uniform(-0.5, 0.5, 900)
        soundfile.write(tmp_path / f"{number}.wav", fine, 16000, subtype="FLOAT")
    (tmp_path / "words.txt").write_text("a letter")
    source = source_of(tmp_path)
    now = load(source)
    assert now.families[0].has_levels
    assert now.notes[-1] == "1 file of other endings (.txt) is not read."
    # Its record says nothing of levels.
    before = load(SOUND.as_recorded(source, {"rate": 16000}))
    assert not before.families[0].has_levels
    assert before.train.values.dtype == np.float32
    # Later ones have it on record, whatever became of the files.
    for dataset in (now, before):
        again = load(SOUND.as_recorded(source, SOUND.schema_json(dataset)))
        assert again.sha256() == dataset.sha256()


def test_a_run_reads_its_kind_of_a_folder_that_has_another_since(tmp_path):
    """Songs with an .mp3 of each beside them were music while .mp3 was nothing."""
    for number in range(3):
        write_midi(np.eye(8, 88, number + 30), tmp_path / f"{number}.mid")
    source = source_of(tmp_path)
    alone = load(source)
    (tmp_path / "0.mp3").write_bytes(b"a tune")
    with pytest.raises(ValueError, match="3 music files and 1 sound file: it could be either"):
        load(tmp_path)
    assert load(source).sha256() == alone.sha256()


def test_what_is_too_loud_for_16_bits_is_clipped_and_does_not_wrap_round(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    loud = np.array([0.5, 3.0, -3.0, -0.5] * 100)
    soundfile.write(tmp_path / "loud.wav", loud, 16000, subtype="FLOAT")
    with pytest.warns(UserWarning, match="loud: 200 of 400 samples were louder than 16 bits hold"):
        (new,) = new_sequences(sentences(), source_of("timit-sample"), tmp_path / "loud.wav")
    np.testing.assert_array_equal(new.rows[:4], [16384, 32767, -32768, -16384])


def test_arrays_are_saved_whatever_their_strides(tmp_path):
    rows = np.asfortranarray(np.arange(24).reshape(2, 3, 4))
    _saved.write(
        tmp_path / "x", _saved.Kind("starts"), {"rows": rows, "one": np.float32(1)[...]}, {}
    )
    np.testing.assert_array_equal(
        _saved.read(tmp_path / "x", _saved.Kind("starts"))[1]["rows"], rows
    )
