"""Sound is read exactly, split by file or speaker, and scaled so that its levels stay known."""

import sys
import wave

import jax
import numpy as np
import pytest
import soundfile

from refusals import refuses
from sounds import coarse, noise, peak, sine, write_sphere
from varfilter.data import RandomWindows
from varfilter.data.audio import audio_folder, read_audio, resampled, write_wav
from varfilter.distributions import DiscretizedNormal, Normal

KEY = jax.random.key(0)


# SPHERE


@pytest.mark.parametrize("order", ["01", "10"])
def test_sphere_in_both_byte_orders(tmp_path, order):
    path = write_sphere(tmp_path / "a.WAV", noise(1000), order=order, rate=8000)
    sound = read_audio(path)
    np.testing.assert_array_equal(sound.samples, noise(1000))
    assert sound.samples.dtype == np.int16
    assert sound[1:] == (8000, 16, 1)
    # libsndfile reads the header too, and so checks the file that this test wrote ...
    np.testing.assert_array_equal(soundfile.read(path, dtype="int16")[0], noise(1000))
    # ... and what it writes is read here.
    endian = {"01": "LITTLE", "10": "BIG"}[order]
    soundfile.write(path, noise(1000), 8000, "PCM_16", endian, "NIST")
    np.testing.assert_array_equal(read_audio(path).samples, noise(1000))
    assert read_audio(path).bits == 16


@pytest.mark.parametrize(
    ("coding", "subtype"), [("ulaw", "ULAW"), ("mu-law", "ULAW"), ("alaw", "ALAW")]
)
def test_sphere_of_telephones(tmp_path, coding, subtype):
    """Switchboard and its like: the samples of a WAV file that has the same bytes."""
    codes = np.arange(256, dtype=np.uint8)
    path = write_sphere(tmp_path / "a.sph", codes, coding=coding, rate=8000)
    soundfile.write(tmp_path / "a.wav", np.zeros(256), 8000, subtype)
    data = (tmp_path / "a.wav").read_bytes()
    begin = data.index(b"data") + 8
    (tmp_path / "a.wav").write_bytes(data[:begin] + codes.tobytes() + data[begin + 256 :])
    sound, expected = read_audio(path), read_audio(tmp_path / "a.wav")
    np.testing.assert_array_equal(sound.samples, expected.samples)
    assert len(set(sound.samples.tolist())) >= 255
    assert sound[1:] == expected[1:] == (8000, 8, 1)


def test_sphere_holds_what_its_header_announces(tmp_path):
    """Bytes after the last sample are left out, and a header may be longer than libsndfile's."""
    path = write_sphere(tmp_path / "a.WAV", noise(1000), announced=900)
    np.testing.assert_array_equal(read_audio(path).samples, noise(1000)[:900])
    long = [f"speaker_id -s1500 {'x' * 1500}", "comment -s16 end_head, Gr\xfc\xdfe"]
    path = write_sphere(tmp_path / "a.WAV", noise(1000), header=long, size=4096)
    np.testing.assert_array_equal(read_audio(path).samples, noise(1000))


def test_sphere_with_two_channels(tmp_path):
    path = write_sphere(tmp_path / "a.sph", np.array([1, 3, -5, 5, 7, 8]), channels=2)
    # 7.5 is rounded to the even level.
    np.testing.assert_array_equal(read_audio(path).samples, [2, 0, 8])


def test_bad_sphere_is_refused(tmp_path):
    def bad(name, *words, **options):
        path = write_sphere(tmp_path / name, noise(100), **options)
        refuses(lambda: read_audio(path), ValueError, name, *words)

    bad("cut.WAV", "cut off", "101 samples", "100 are there", announced=101)
    shorten = ["sample_coding -s26 pcm,embedded-shorten-v2.00"]
    bad("short.WAV", "embedded-shorten-v2.00", "sph2pipe", header=shorten)
    shortened = np.frombuffer(b"ajkg", "<i2")
    path = write_sphere(tmp_path / "magic.WAV", np.concatenate([shortened, noise(100)]))
    refuses(lambda: read_audio(path), ValueError, "magic.WAV", "shorten", "sph2pipe")
    bad("ulaw.WAV", "'ulaw'", "sph2pipe", header=["sample_coding -s4 ulaw"])
    bad("one.WAV", "1 byte", header=["sample_n_bytes -i 1"])
    bad("order.WAV", "`sample_byte_format`", "'1'", header=["sample_byte_format -s1 1"])
    bad("rate.WAV", "`sample_rate`", "'x'", header=["sample_rate -s1 x"])
    bad("empty.WAV", "`sample_count`", "'0'", announced=0)
    path = tmp_path / "cut.WAV"
    path.write_bytes(path.read_bytes()[:200])
    refuses(lambda: read_audio(path), ValueError, "cut.WAV", "damaged")
    path.write_bytes(b"NIST_1A\n   many\n")
    refuses(lambda: read_audio(path), ValueError, "cut.WAV", "damaged")
    path.write_bytes(b"RIFF")
    refuses(lambda: read_audio(path), ValueError, "cut.WAV", "cannot be read as sound")


# Any sound of the user's


@pytest.mark.parametrize(("suffix", "form"), [("wav", "WAV"), ("flac", "FLAC")])
def test_16_bit_files_are_read_exactly(tmp_path, suffix, form):
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, noise(5000), 22050, "PCM_16", format=form)
    sound = read_audio(str(path))
    np.testing.assert_array_equal(sound.samples, noise(5000))
    assert sound.samples.dtype == np.int16
    assert sound[1:] == (22050, 16, 1)


@pytest.mark.parametrize(
    ("subtype", "bits", "distance"),
    [("PCM_24", 24, 2**-8), ("PCM_32", 32, None), ("FLOAT", 32, None), ("DOUBLE", 64, None)],
)
def test_finer_files_are_not_rounded(tmp_path, subtype, bits, distance):
    fine = noise(500) / 2**15 + 2.0**-20
    fine[1] = 0.25 + 2.0**-20
    soundfile.write(tmp_path / "a.wav", fine, 16000, subtype)
    sound = read_audio(tmp_path / "a.wav")
    assert sound.samples.dtype == np.float32
    assert (sound.bits, sound.distance) == (bits, distance)
    # In levels of 16 bits; float32 holds these 20 bits and the sign exactly.
    np.testing.assert_array_equal(sound.samples, fine * 2**15)


def test_8_bit_files_are_whole_16_bit_levels(tmp_path):
    coarse = (noise(500) // 256 * 256).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", coarse, 16000, "PCM_U8")
    sound = read_audio(tmp_path / "a.wav")
    np.testing.assert_array_equal(sound.samples, coarse)
    assert (sound.bits, sound.distance) == (8, 256)


def test_channels_are_averaged(tmp_path):
    left, right = noise(500, 1), noise(500, 2)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], 1), 16000, "PCM_16")
    expected = np.rint((left.astype(float) + right) / 2)
    np.testing.assert_array_equal(read_audio(tmp_path / "a.wav").samples, expected)


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
@pytest.mark.parametrize("rate", [8000, 11025, 44100, 48000])
def test_resampling_keeps_the_frequency(rate, dtype):
    samples = resampled(sine(440, rate).astype(dtype), rate, 16000)
    assert samples.dtype == dtype
    assert abs(len(samples) - 8000) <= 1
    # Half a second: the lines of the spectrum are 2 Hz apart.
    assert peak(samples, 16000) == pytest.approx(440, abs=2)
    # Away from the ends it is the sine itself: the filter ripples by two thousandths of 8000.
    inner = slice(200, -200)
    expected = sine(440, 16000)[: len(samples)][inner].astype(float)
    np.testing.assert_allclose(samples[: len(expected) + 400][inner], expected, atol=16)


def test_resampling_filters_what_the_new_rate_cannot_hold():
    samples = resampled(sine(10_000, 48_000), 48_000, 16_000)
    assert np.abs(samples[200:-200]).max() < 0.01 * 8000
    loud = resampled(np.repeat(np.array([-(2**15), 2**15 - 1], np.int16), 100), 8000, 16000)
    # The overshoot at the edge is clipped, not wrapped around.
    assert (np.sign(loud[:195]) == -1).all()
    assert (np.sign(loud[205:395]) == 1).all()
    refuses(lambda: resampled(noise(9), 0, 8000), ValueError, "`from_rate`", "0")


def test_folder_in_one_line(tmp_path):
    for number, rate in enumerate([8000, 16000, 44100, 48000, 16000]):
        both = np.stack([sine(300, rate), sine(300, rate)], 1)
        folder = tmp_path / f"speaker{number}"
        folder.mkdir()
        soundfile.write(folder / "a.wav", both if number % 2 else both[:, 0], rate, "PCM_16")
        # Each its own height: exact copies would go to one split.
        own = sine(300, rate, height=8000 + number)
        soundfile.write(folder / "b.FLAC", own, rate, "PCM_16", format="FLAC")
        write_sphere(folder / "c.sph", own, rate=rate)
        (folder / "notes.txt").write_text("not a sound")
        (folder / "._a.wav").write_bytes(b"Mac OS X")
    dataset = audio_folder(tmp_path)
    splits = ("train", "valid", "test")
    assert [len(dataset.split(s)) for s in splits] == [12, 2, 1]
    names = [name for s in splits for name in dataset.names[s]]
    assert sorted(names) == [f"speaker{i}/{file}" for i in range(5) for file in "abc"]
    assert dataset.train.values.dtype == np.int16
    assert dataset.observation_shape == (200,)
    assert dataset.rate == 16000
    assert dataset.family.width == 1 / dataset.scaling.scale
    # A sine's spread is its height over the square root of two.
    assert dataset.scaling.scale == pytest.approx(8000 / np.sqrt(2), rel=0.01)
    for split in splits:
        for samples in dataset.split(split):
            assert abs(len(samples) - 8000) <= 1
            assert peak(samples, 16000) == pytest.approx(300, abs=2)
    assert RandomWindows(dataset, 40, 2).windows(0, KEY).xs.shape == (2, 40, 200)
    again, other = audio_folder(tmp_path), audio_folder(tmp_path, seed=1)
    assert again.names == dataset.names != other.names
    assert again.sha256() == dataset.sha256()


def test_folder_by_speaker(tmp_path):
    for number in range(30):
        folder = tmp_path / f"speaker{number % 6}"
        folder.mkdir(exist_ok=True)
        write_wav(noise(400, number), folder / f"{number}.wav", 16000)
    dataset = audio_folder(
        tmp_path, frame_size=100, fractions=(0.5, 0.25, 0.25), group=lambda path: path.parent.name
    )
    speakers = [{name.split("/")[0] for name in dataset.names[s]} for s in dataset.names]
    assert sorted(map(len, speakers)) == [1, 2, 3]
    assert len(set.union(*speakers)) == 6
    assert sum(map(len, dataset.names.values())) == 30
    assert dataset.observation_shape == (100,)
    for split, names in dataset.names.items():
        for number, name in enumerate(names):
            expected = noise(400, int(name.split("/")[1]))
            np.testing.assert_array_equal(dataset.split(split)[number], expected)


@pytest.mark.parametrize("forms", [("PCM_U8",), ("PCM_16",), ("PCM_24",), ("PCM_U8", "PCM_16")])
def test_the_window_is_the_distance_of_neighbouring_levels(tmp_path, forms):
    for number in range(8):
        form = forms[number % len(forms)]
        fine = np.random.default_rng(number).integers(-(2**23), 2**23, 400) / 2.0**23
        samples = {"PCM_U8": coarse(400, number), "PCM_16": noise(400, number), "PCM_24": fine}
        soundfile.write(tmp_path / f"{number}.wav", samples[form], 16000, form)
    dataset = audio_folder(tmp_path, fine=True)
    distance = min({"PCM_U8": 256, "PCM_16": 1, "PCM_24": 2**-8}[form] for form in forms)
    assert dataset.family.distribution is DiscretizedNormal
    assert dataset.family.width == distance / dataset.scaling.scale
    # What is stored lies on levels of that distance, and on none twice as far apart.
    values = dataset.train.values.astype(np.float64)
    assert (values % distance == 0).all()
    assert (values % (2 * distance) != 0).any()
    assert dataset.train.values.dtype == (np.float32 if distance < 1 else np.int16)


def test_new_levels_have_the_window_of_16_bits_or_none(tmp_path):
    def family(form, *, rate=16000, channels=1):
        folder = tmp_path / f"{form}-{rate}-{channels}"
        folder.mkdir()
        for number in range(3):
            samples = np.stack([coarse(900, 9 * number + i) for i in range(channels)], 1)
            soundfile.write(folder / f"{number}.wav", samples, rate, form)
        dataset = audio_folder(folder, rate=16000, fine=True)
        width = dataset.family.width
        return dataset.family.distribution, width and width * dataset.scaling.scale

    exactly = pytest.approx(1.0, rel=1e-12)
    # Mu-law and A-law: levels of unequal distance, kept in 16-bit units.
    for form in ("ULAW", "ALAW"):
        assert family(form) == (DiscretizedNormal, exactly)
    assert family("PCM_U8", rate=8000) == (DiscretizedNormal, exactly)
    assert family("PCM_U8", channels=2) == (DiscretizedNormal, exactly)
    assert family("PCM_16", channels=2) == (DiscretizedNormal, exactly)
    for case in ({"rate": 8000}, {"channels": 2}):
        assert family("PCM_24", **case) == (Normal, None)
    for form in ("PCM_32", "FLOAT", "DOUBLE"):
        assert family(form) == (Normal, None)


def test_the_rate_is_the_files_own(tmp_path):
    for number in range(3):
        write_wav(noise(900, number), tmp_path / f"{number}.wav", 11025)
    dataset = audio_folder(tmp_path)
    assert dataset.rate == 11025.0
    (only,) = dataset.notes
    assert only == "The rate is the files' own, 11,025 Hz. A step of 200 samples lasts 18.1 ms."
    # As they are in the files, to the sample.
    found = sorted(
        np.asarray(part[i]).tobytes() for part in _parts(dataset) for i in range(len(part))
    )
    assert found == sorted(noise(900, number).tobytes() for number in range(3))
    # Of several, that of most files; of as many each, the lower, which makes nothing up.
    write_wav(noise(900, 3), tmp_path / "3.wav", 44100)
    assert audio_folder(tmp_path).rate == 11025.0
    for number in (4, 5):
        write_wav(noise(900, number), tmp_path / f"{number}.wav", 44100)
    mixed = audio_folder(tmp_path)
    assert mixed.rate == 11025.0
    assert mixed.notes[0].startswith(
        "The files have several rates, 11,025 Hz (3 files) and 44,100 Hz (3 files); 11,025 Hz was"
    )
    assert mixed.notes[1:] == ("3 of 6 files were resampled from 44,100 to 11,025 Hz.",)


def _parts(dataset):
    return dataset.train, dataset.valid, dataset.test


def test_copies_of_a_file_stay_together(tmp_path):
    for number in range(4):
        for copy in "ab":
            write_wav(noise(400, number), tmp_path / f"{copy}{number}.wav", 16000)
    for seed in range(5):
        names = audio_folder(tmp_path, seed=seed).names
        sounds = [{name[1] for name in names[split]} for split in names]
        assert [len(part) for part in sounds] == [2, 1, 1]
        assert set.union(*sounds) == set("0123")
    for number in (2, 3):
        for copy in "ab":
            (tmp_path / f"{copy}{number}.wav").unlink()
    words = ["`folder`", str(tmp_path), "has 2 (of 4 files, exact copies counted once)"]
    refuses(lambda: audio_folder(tmp_path), ValueError, *words)


def test_stored_sound_is_mapped_and_equal(tmp_path, monkeypatch):
    folder, cache = tmp_path / "sounds", tmp_path / "cache"
    folder.mkdir()
    for number in range(5):
        write_wav(noise(3000 + number, number), folder / f"{number}.wav", 8000)
    plain = audio_folder(folder)
    reads = []

    def read(path):
        reads.append(path.name)
        if len(reads) == 8:  # the third file of the second time
            raise KeyboardInterrupt
        return read_audio(path)

    monkeypatch.setattr("varfilter.data.audio.read_audio", read)
    first = audio_folder(folder, cache=cache)
    (stored,) = cache.iterdir()
    second = audio_folder(folder, frame_size=100, cache=cache)
    assert len(reads) == 5
    for dataset in (first, second):
        assert isinstance(dataset.train.values, np.memmap)
        assert dataset.names == plain.names
        assert (dataset.scaling, dataset.family) == (plain.scaling, plain.family)
        for split in plain.names:
            np.testing.assert_array_equal(dataset.split(split).values, plain.split(split).values)
    assert first.sha256() == plain.sha256()
    # Another rate is another set; broken off, it leaves nothing.
    with pytest.raises(KeyboardInterrupt):
        audio_folder(folder, rate=4000, cache=cache)
    assert list(cache.iterdir()) == [stored]
    # One finer file makes the others floats, from the first that is written on.
    reads.clear()
    soundfile.write(folder / "9.wav", noise(3000) / 2**16, 16000, "FLOAT")
    fine = audio_folder(folder, fine=True, cache=cache)
    assert fine.train.values.dtype == np.float32
    assert fine.family.distribution is Normal


def test_files_shorter_than_a_step_are_refused(tmp_path):
    for number in range(3):
        write_wav(noise(150, number), tmp_path / f"{number}.wav", 16000)
    words = ["`frame_size`", "200", str(tmp_path), "150", "16000"]
    refuses(lambda: audio_folder(tmp_path), ValueError, *words)
    assert len(audio_folder(tmp_path, frame_size=150).train) == 1


def test_one_fine_file_makes_a_folder_of_floats(tmp_path):
    for number in range(4):
        write_wav(noise(400, number), tmp_path / f"{number}.wav", 16000)
    soundfile.write(tmp_path / "4.wav", noise(400, 4) / 2**15 + 2.0**-20, 16000, "PCM_24")
    dataset = audio_folder(tmp_path, fine=True)
    assert dataset.family.width == 2**-8 / dataset.scaling.scale
    for split, names in dataset.names.items():
        for number, name in enumerate(names):
            samples = dataset.split(split)[number]
            assert samples.dtype == np.float32
            # One unit for all: the 24-bit file is 2**-5 of a level above its 16-bit values.
            expected = noise(400, int(name)) + (2.0**-5 if name == "4" else 0.0)
            np.testing.assert_array_equal(samples[2:], expected[2:])


def test_what_is_finer_than_16_bits_is_rounded_as_players_do(tmp_path):
    forms = ("PCM_24", "FLOAT", "PCM_16", "DOUBLE", "PCM_32", "PCM_24")
    for number, form in enumerate(forms):
        fine = np.random.default_rng(number).uniform(-0.9, 0.9, 500)
        soundfile.write(tmp_path / f"{number}.wav", fine, 16000, form)
    dataset = audio_folder(tmp_path)
    # Whole levels of 16 bits, so that there are bits a sample, and linear prediction beside them.
    assert dataset.family.distribution is DiscretizedNormal
    assert dataset.family.width == pytest.approx(1 / dataset.scaling.scale)
    assert dataset.train.values.dtype == np.int16
    for split, names in dataset.names.items():
        for number, name in enumerate(names):
            own = read_audio(tmp_path / f"{name}.wav").samples
            np.testing.assert_array_equal(dataset.split(split)[number], np.rint(own))
    assert dataset.notes[-1] == (
        "5 of 6 files were rounded to the levels of 16 bits, as players do (2 files of 24 bits,"
        " 2 files of floats and 1 file of 32 bits); `fine` keeps what is finer."
    )
    kept = audio_folder(tmp_path, fine=True)
    assert kept.family.distribution is Normal
    assert "of densities, and do not compare with bits a sample" in kept.notes[-1]
    # Nothing to say of what is not finer, and a warning of what 16 bits do not hold.
    for number in range(6):
        write_wav(noise(400, number), tmp_path / f"{number}.wav", 16000)
    assert "16 bits" not in " ".join(audio_folder(tmp_path).notes)
    soundfile.write(tmp_path / "0.wav", np.array([0.5, 3.0, -3.0, -0.5] * 100), 16000, "FLOAT")
    with pytest.warns(UserWarning, match=r"1 file has samples .* clipped: 200 of 400 in 0\.wav\."):
        audio_folder(tmp_path)


@pytest.mark.parametrize(
    ("suffix", "form", "subtype"),
    [
        ("mp3", "MP3", "MPEG_LAYER_III"),
        ("ogg", "OGG", "VORBIS"),
        ("opus", "OGG", "OPUS"),
        ("aiff", "AIFF", "PCM_16"),
        ("aif", "AIFF", "PCM_24"),
    ],
)
def test_what_phones_and_shops_give_is_read(tmp_path, suffix, form, subtype):
    if form not in soundfile.available_formats():
        pytest.skip(f"libsndfile {soundfile.__libsndfile_version__} has no {form}")
    for number in range(3):
        tone = sine(440, 48000, seconds=1.0, height=8000 + number) / 2**15
        soundfile.write(tmp_path / f"{number}.{suffix}", tone, 48000, subtype, format=form)
    dataset = audio_folder(tmp_path)
    assert dataset.family.width == pytest.approx(1 / dataset.scaling.scale)
    assert ("rounded" in dataset.notes[-1]) == (subtype != "PCM_16")
    for samples in dataset.train:
        assert peak(samples, 48000) == pytest.approx(440, abs=2)
        # What is lossy keeps the loudness to a few in a hundred.
        assert np.std(samples) == pytest.approx(8000 / np.sqrt(2), rel=0.05)


def test_half_an_aiff_file_is_refused(tmp_path):
    path = tmp_path / "a.aiff"
    soundfile.write(path, noise(20_000), 16000, "PCM_16", format="AIFF")
    path.write_bytes(path.read_bytes()[:20_000])
    refuses(lambda: read_audio(path), ValueError, "a.aiff", "cut off")


def test_an_old_library_is_told_to_be_updated(tmp_path, monkeypatch):
    path = tmp_path / "a.mp3"
    path.write_bytes(b"not sound at all")
    refuses(lambda: read_audio(path), ValueError, "a.mp3", "cannot be read as sound")
    monkeypatch.setattr(soundfile, "available_formats", lambda: {"WAV": ""})
    refuses(lambda: read_audio(path), ValueError, "a.mp3", "reads no MP3 files", "Update")


def test_what_is_generated_can_be_heard(tmp_path):
    frames = np.array([[0.4, -1.6, 40_000.0], [-40_000.0, 32_767.2, -32_768.4]])
    write_wav(frames, tmp_path / "a.wav", 16000.0)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getparams()[:4] == (1, 2, 16000, 6)
    expected = [0, -2, 32767, -32768, 32767, -32768]
    np.testing.assert_array_equal(read_audio(tmp_path / "a.wav").samples, expected)
    write_wav(jax.numpy.ones((2, 3)), tmp_path / "a.wav", 8000)
    bad = np.array([1.0, np.nan])
    refuses(lambda: write_wav(bad, tmp_path / "b.wav", 8000), ValueError, "`samples`", "1 of 2")
    refuses(lambda: write_wav(frames, tmp_path / "b.wav", 0.5), ValueError, "`rate`", "0.5")
    # Refused before anything is written.
    assert not (tmp_path / "b.wav").exists()


def test_what_is_no_sound_is_refused(tmp_path):
    refuses(lambda: audio_folder(tmp_path / "x"), FileNotFoundError, "`folder`", "x")
    refuses(lambda: audio_folder(tmp_path), FileNotFoundError, "`folder`", ".wav", "has none")
    refuses(lambda: read_audio(tmp_path / "a.wav"), FileNotFoundError, "`path`", "a.wav")
    for seed, name in enumerate(("a.wav", "b.wav")):
        write_wav(noise(400, seed), tmp_path / name, 16000)
    refuses(lambda: audio_folder(tmp_path), ValueError, "at least 3 files", "has 2")
    refuses(lambda: audio_folder(tmp_path, frame_size=0), ValueError, "`frame_size`", "0")
    refuses(lambda: audio_folder(tmp_path, rate=-1), ValueError, "`rate`", "-1")
    refuses(
        lambda: audio_folder(tmp_path, group=lambda path: path.parent.name),
        ValueError, "at least 3 groups", "has 1",
    )  # fmt: skip
    path = tmp_path / "c.wav"
    path.write_text("This is a letter, not a sound.")
    refuses(lambda: audio_folder(tmp_path), ValueError, "c.wav", "cannot be read")
    path.write_bytes(b"")
    refuses(lambda: read_audio(path), ValueError, "c.wav", "cannot be read")
    write_wav(np.zeros(0), path, 16000)
    refuses(lambda: read_audio(path), ValueError, "c.wav", "0 samples")
    soundfile.write(path, np.array([0.0, np.inf, 0.1]), 16000, "FLOAT")
    refuses(lambda: read_audio(path), ValueError, "c.wav", "infinite")


@pytest.mark.parametrize(("suffix", "form"), [("wav", "WAV"), ("flac", "FLAC")])
def test_half_a_file_is_refused(tmp_path, suffix, form):
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, noise(20_000), 16000, "PCM_16", format=form)
    path.write_bytes(path.read_bytes()[:20_000])
    refuses(lambda: read_audio(path), ValueError, f"a.{suffix}")


def test_wav_written_to_a_pipe_is_read(tmp_path):
    """Its sizes are unknown when it begins, and stand as the highest number."""
    path = tmp_path / "a.wav"
    write_wav(noise(400), path, 16000)
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 4 + data[8:40] + b"\xff" * 4 + data[44:])
    np.testing.assert_array_equal(read_audio(path).samples, noise(400))


def test_without_soundfile_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    write_wav(noise(400), tmp_path / "a.wav", 16000)
    for path in (tmp_path / "a.wav", write_sphere(tmp_path / "b.WAV", noise(400))):
        refuses(lambda path=path: read_audio(path), ImportError, "`soundfile`", "varfilter[audio]")
