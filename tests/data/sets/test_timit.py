"""TIMIT and its free sample: read exactly, split by speaker, and judged."""

import hashlib
from pathlib import Path

import jax
import numpy as np
import pytest
import soundfile

from real_data import DATA, needs_data
from refusals import refuses
from sounds import noise, write_sphere
from varfilter.data import RandomWindows, consecutive_windows
from varfilter.data.audio import sound_dataset, write_wav
from varfilter.data.dataset import Dataset
from varfilter.data.recordings import Recording
from varfilter.data.sets.timit import check_timit, timit, timit_sample, timit_split
from varfilter.distributions import DiscretizedNormal

SAMPLE = DATA / "speech" / "timit_sample"
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def sample() -> Dataset:
    return timit_sample(SAMPLE)


# The real sample of TIMIT


@needs_data
def test_sample_of_timit_is_all_there(sample):
    speakers = {s: {name.split("_")[0] for name in sample.names[s]} for s in sample.names}
    assert [len(sample.split(s)) for s in ("train", "valid", "test")] == [120, 20, 20]
    assert [len(speakers[s]) for s in ("train", "valid", "test")] == [12, 2, 2]
    assert len(set.union(*speakers.values())) == 16
    assert {name[:3] for name in speakers["valid"]} == {"dr7"}
    assert {name[:3] for name in speakers["test"]} == {"dr8"}
    rows = sum(len(sample.split(s).values) for s in ("train", "valid", "test"))
    assert rows / sample.rate == pytest.approx(490, abs=1)
    assert sample.rate == 16000
    assert sample.name == "timit-sample"
    assert sample.train.values.dtype == np.int16
    assert sample.observation_shape == (200,)
    # Bit for bit what the decoder gives for the file of that name.
    number = sample.names["valid"].index("dr7-fblv0_si1058")
    expected, _ = soundfile.read(SAMPLE / "dr7-fblv0_si1058.flac", dtype="int16")
    np.testing.assert_array_equal(sample.valid[number], expected)


@needs_data
def test_levels_stay_known_after_scaling(sample):
    values = sample.train.values.astype(np.float64)
    assert sample.scaling.offset == pytest.approx(values.mean(), abs=1e-9)
    assert sample.scaling.scale == pytest.approx(values.std(), rel=1e-12)
    # The whole corpus has 548; a dozen speakers differ from it by some per cent.
    assert sample.scaling.scale == pytest.approx(548, rel=0.1)
    assert sample.family.distribution is DiscretizedNormal
    assert sample.family.width == 1 / sample.scaling.scale
    xs = sample.scaling(values)
    assert xs.mean() == pytest.approx(0, abs=1e-9)
    assert xs.std() == pytest.approx(1, abs=1e-9)
    # In the model's units every sample is a whole number of widths from the level 0.
    levels = (
        sample.observations(sample.test[0]) - sample.scaling(np.zeros(1))
    ) / sample.family.width
    # Levels reach 2**15 and float32 has 24 bits: two roundings of 2**-10 of a level each.
    np.testing.assert_allclose(levels, np.rint(levels), atol=0.002)


@needs_data
def test_windows_are_the_samples_scaled(sample):
    windows = RandomWindows(sample, 40, 16)
    batch = windows.windows(3, KEY)
    assert batch.xs.shape == (16, 40, 200)
    for row, place in enumerate(np.asarray(windows.places(3, KEY))):
        raw = sample.train.values[place : place + 8000].astype(np.float64)
        expected = (raw - sample.scaling.offset) / sample.scaling.scale
        np.testing.assert_allclose(batch.xs[row].reshape(-1), expected, atol=1e-5)
    steps = sum(int(batch.mask.sum()) for batch in consecutive_windows(sample, 40, 16))
    # All steps of the validation part but for windows of a single one, at most one a file.
    assert 0 <= (sample.valid.lengths // 200).sum() - steps <= 20


@needs_data
def test_sample_has_the_entropy_of_speech(sample):
    """Independent N(0, 1): 1,545.7 nats a step for the whole corpus, near it here."""
    xs = sample.scaling(sample.test.values.astype(np.float64))
    nats = 100 * (np.log(2 * np.pi) + (xs**2).mean()) - 200 * np.log(sample.family.width)
    # The spread of twelve speakers is 566 and not 548 (+6 nats); two are softer (-23).
    assert nats == pytest.approx(1545.7, abs=20)


# The whole corpus: a small tree of the same form, and the rule on 4,620 names


def corpus_names(part, num):
    """As many names as TIMIT has there, in its form: 10 sentences for each speaker."""
    return [f"{part}/DR{1 + i // 10 % 8}/F{i // 10:03}0/SX{i % 10}" for i in range(num)]


def test_split_of_4620_names_is_that_of_python_2():
    names = corpus_names("TRAIN", 4620)
    train, valid = timit_split(names[::-1])
    assert (len(train), len(valid)) == (4389, 231)
    assert sorted(train + valid) == sorted(names)
    # Printed by Python 2.7.18: random.seed(1234); x = range(4620); random.shuffle(x).
    places = [sorted(names).index(name) for name in valid + train]
    assert places[:8] == [68, 1587, 2250, 3818, 1767, 947, 2089, 1805]
    digest = hashlib.sha256(",".join(map(str, places)).encode()).hexdigest()
    assert digest == "947640d3819dc61a5a28d859eab5249037008719353d6d9e6157ebe93022a926"


@pytest.mark.parametrize("below", ["", "data/lisa/data/timit/raw/TIMIT"])
@pytest.mark.parametrize("case", [str.upper, str.lower])
def test_timit_tree(tmp_path, below, case):
    rng = np.random.default_rng(0)
    for part, num in (("TRAIN", 40), ("TEST", 10)):
        for name in corpus_names(part, num):
            samples = rng.normal(0, 500, rng.integers(100, 900)).astype(np.int16)
            write_sphere(tmp_path / below / case(f"{name}.WAV"), samples)
            (tmp_path / below / case(f"{name}.TXT")).write_text("She had your dark suit.")
    dataset = timit(tmp_path)
    assert [len(dataset.split(s)) for s in ("train", "valid", "test")] == [38, 2, 10]
    assert dataset.name == "timit"
    assert dataset.rate == 16000
    assert dataset.observation_shape == (200,)
    train, valid = timit_split(corpus_names("TRAIN", 40))
    for split, names in (("train", train), ("valid", valid), ("test", corpus_names("TEST", 10))):
        for number, name in enumerate(names):
            _, region, speaker, sentence = name.lower().split("/")
            assert dataset.names[split][number] == f"{region}-{speaker}_{sentence}"
            # The samples follow a header of 1,024 bytes.
            data = (tmp_path / below / case(f"{name}.WAV")).read_bytes()[1024:]
            np.testing.assert_array_equal(dataset.split(split)[number], np.frombuffer(data, "<i2"))
    verdict = check_timit(dataset)
    assert not verdict.is_good
    assert (
        "BAD files (train, valid, test): (38, 2, 10), expected (4389, 231, 1680)" in verdict.lines
    )


def test_timit_prefers_the_original_beside_a_converted_copy(tmp_path):
    for name in corpus_names("TRAIN", 20) + corpus_names("TEST", 2):
        write_sphere(tmp_path / f"{name}.WAV", noise(300))
        write_wav(np.zeros(300), tmp_path / f"{name}.WAV.wav", 16000)
        (tmp_path / name).with_name("._SX0.WAV").write_bytes(b"Mac OS X")
    dataset = timit(tmp_path)
    assert len(dataset.train) == 19
    np.testing.assert_array_equal(dataset.train[0], noise(300))
    write_sphere(tmp_path / "copy" / "TRAIN/DR1/F0000/SX0.WAV", noise(300))
    refuses(lambda: timit(tmp_path), ValueError, "once", "copy", "Give the folder")


def test_timit_in_plain_wav(tmp_path):
    for name in corpus_names("TRAIN", 20) + corpus_names("TEST", 1):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_wav(noise(300), tmp_path / f"{name}.WAV", 16000)
    np.testing.assert_array_equal(timit(tmp_path).test[0], noise(300))
    write_wav(noise(300), tmp_path / "TEST/DR1/F0000/SX1.wav", 8000)
    refuses(lambda: timit(tmp_path), ValueError, "SX1.wav", "8000", "16000")


def corpus_like(mean, std, counts=(4389, 231, 1680)):
    """As many tiny recordings as TIMIT has, with this mean and spread."""
    pair = np.array([-1.0, 1.0]) * std + mean
    splits = zip(("train", "valid", "test"), counts, strict=True)
    recording = Recording((), ("",), lambda: [(pair.astype(np.float32), 16000)])
    sounds = {split: [recording] * count for split, count in splits}
    dataset = sound_dataset("timit", sounds, folder=Path(), rate=16000, frame_size=1, distance=None)
    # Only whole levels are stored; these are floats for the sake of the mean.
    dataset.train.values = dataset.train.values.astype(np.int16)
    return dataset


def test_verdict_on_the_whole_corpus():
    same = check_timit(corpus_like(0.00606, 548.1362))
    assert same.is_good
    assert "the same to rounding" in same.lines[2]
    assert same.lines[-1] == "This is TIMIT, complete."
    # 1/549.7 is the width in the code of Marino et al., who split in another order.
    other = check_timit(corpus_like(0.0047, 549.7))
    assert other.is_good
    assert "rounding" not in other.lines[2]
    assert not check_timit(corpus_like(0.006, 530.0)).is_good
    assert not check_timit(corpus_like(0.1, 548.1)).is_good
    assert not check_timit(corpus_like(0.00606, 548.1362, (4388, 231, 1680))).is_good


def test_timit_refuses(tmp_path):
    refuses(lambda: timit(tmp_path / "none"), FileNotFoundError, "`folder`", "none")
    refuses(lambda: timit(tmp_path), FileNotFoundError, "`folder`", "sound files")
    for name in corpus_names("TRAIN", 20):
        write_sphere(tmp_path / f"{name}.WAV", noise(300))
    refuses(lambda: timit(tmp_path), FileNotFoundError, "TEST/DRn", "Give the folder")
    refuses(lambda: timit_sample(tmp_path), ValueError, "drN-SPEAKER_SENTENCE", "`audio_folder`")
