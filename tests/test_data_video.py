"""Films: KTH, Weizmann, the user's own folders, and moving digits."""

import io
import os
import shutil
import weakref
import zipfile
from itertools import chain, combinations, pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from refusals import refuses
from varfilter.data.dataset import SPLITS
from varfilter.data.sets.digits import moving_digits
from varfilter.data.sets.kth import ACTIONS, PERSONS, kth, kth_sample, kth_table
from varfilter.data.sets.weizmann import PEOPLE, weizmann
from varfilter.data.video import decode_video, read_video, resize, stretched, video_folder
from varfilter.distributions import Bernoulli, DiscretizedNormal

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data")) / "video"
KTH, WEIZMANN = DATA / "kth_sample", DATA / "weizmann"
WALKING = KTH / "person01_walking_d1_uncomp.avi"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data sets in {DATA}")


def write_video(path, images, *, codec="ffv1", pixels="gray", rate=10, rotation=0):
    """Images (time, height, width[, 3]) as a file; ffv1 loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = pixels
        if rotation:
            stream.set_display_rotation(rotation)
        for image in images:
            frame = av.VideoFrame.from_ndarray(image, "gray" if image.ndim == 2 else "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def noise(num_frames, height=12, width=16, *, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (num_frames, height, width), np.uint8)


# KTH


@pytest.fixture(scope="module")
def table():
    return kth_table(KTH / "00sequences.txt")


@needs_data
def test_kth_table_has_the_counts_and_lengths_of_the_specification(table):
    # Spec 6.4: sequences; mean, shortest and longest, the last frame not counted.
    expected = {
        "train": (760, 97.5, 29, 361), "valid": (768, 94.2, 25, 210), "test": (863, 91.1, 23, 238),
    }  # fmt: skip
    assert len(table) == 2391
    assert {clip.action for clip in table} == set(ACTIONS)
    for split, persons in PERSONS.items():
        lengths = [clip.end - clip.start for clip in table if clip.person in persons]
        found = (len(lengths), round(np.mean(lengths), 1), min(lengths), max(lengths))
        assert found == expected[split]
    assert sorted(sum(PERSONS.values(), ())) == list(range(1, 26))


@needs_data
def test_kth_table_has_no_frame_twice_and_keeps_all_others(table):
    raw = (KTH / "00sequences.txt").read_text(encoding="latin-1").splitlines()
    lines = {line.split()[0]: line.replace(",", " ").split() for line in raw if line.strip()}
    for before, after in pairwise(table):
        assert before.film != after.film or before.end < after.start
    # The seven that spec 6.4 names.
    assert {c.film for c in table if f"{c.start}-{c.end}" not in lines[c.film]} == {
        "person12_handclapping_d4", "person15_handclapping_d2", "person16_handwaving_d4",
        "person17_boxing_d1", "person21_boxing_d2", "person21_handclapping_d1",
        "person03_walking_d4",
    }  # fmt: skip
    by_film = {clip.film: [] for clip in table}
    for clip in table:
        by_film[clip.film].append((clip.start, clip.end))
    assert len(by_film) == 599
    assert by_film["person16_handwaving_d4"] == [(1, 104), (105, 206), (207, 311), (312, 456)]
    assert by_film["person21_handclapping_d1"] == [(1, 118), (119, 224), (225, 365), (366, 500)]
    # Not in the order of time in the file, but no overlap.
    assert by_film["person07_jogging_d4"] == [(1, 64), (194, 264), (270, 332), (490, 570)]


def test_kth_table_refuses_what_it_cannot_read(tmp_path):
    path = tmp_path / "00sequences.txt"
    refuses(lambda: kth_table(path), FileNotFoundError, str(path), "table of sub-sequences")
    path.write_text("nothing\n", encoding="utf-8")
    refuses(lambda: kth_table(path), ValueError, str(path), "no sub-sequences")
    path.write_text("\nperson01_boxing_d1\tframes\t1-95, 96_185\n", encoding="utf-8")
    refuses(lambda: kth_table(path), ValueError, str(path), "line 2", "96_185")
    path.write_text("person01_boxing_d1\tframes\t1-95, 20-90\n", encoding="utf-8")
    refuses(lambda: kth_table(path), ValueError, "line 1", "90", "no frames")


@needs_data
def test_kth_sample_has_the_sub_sequences_of_the_table(table):
    sample = kth_sample(KTH)
    lengths = {clip.name: clip.end - clip.start + 1 for clip in table}
    for split in SPLITS:
        assert sample.split(split).lengths.tolist() == [lengths[n] for n in sample.names[split]]
    assert [len(sample.split(split)) for split in SPLITS] == [4, 2, 2]
    assert sample.valid.lengths.tolist() == [47, 76]
    assert sample.observation_shape == (1, 64, 64)
    assert sample.rate == 25.0
    assert sample.family.distribution is DiscretizedNormal
    whole = read_video(WALKING)
    assert whole.shape == (555, 1, 64, 64)
    # 480-555 counts from 1, to the last frame.
    np.testing.assert_array_equal(sample.test[1], whole[479:])
    xs = sample.observations(sample.test[1])
    assert xs.dtype == np.float32
    assert 0.0 <= xs.min() < 0.3 < 0.6 < xs.max() <= 1.0


@needs_data
def test_kth_from_zip_files_equals_kth_from_films(tmp_path):
    # The real film as one person of each split, and one action.
    names = {"train": "person11", "valid": "person04", "test": "person22"}
    packed, unpacked = tmp_path / "packed", tmp_path / "unpacked"
    for folder in (packed, unpacked):
        folder.mkdir()
        lines = [f"{name}_walking_d1\t\tframes\t1-75, 152-225\r\n" for name in names.values()]
        lines.append("person13_boxing_d3\t*missing*\r\n")
        (folder / "00sequences.txt").write_text("".join(lines), encoding="utf-8")
    with zipfile.ZipFile(packed / "walking.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names.values():
            archive.write(WALKING, f"{name}_walking_d1_uncomp.avi")
            shutil.copy(WALKING, unpacked / f"{name}_walking_d1_uncomp.avi")
    sets = [kth(packed, size=32), kth(unpacked, size=32, actions=["walking"])]
    whole = read_video(WALKING, 32)
    for split, name in names.items():
        assert sets[0].names[split] == (f"{name}_walking_d1_1-75", f"{name}_walking_d1_152-225")
        for films in sets:
            np.testing.assert_array_equal(films.split(split)[0], whole[:75])
            np.testing.assert_array_equal(films.split(split)[1], whole[151:225])
    assert sets[0].sha256() == sets[1].sha256()

    (unpacked / "person22_walking_d1_uncomp.avi").unlink()
    refuses(lambda: kth(unpacked), FileNotFoundError, str(unpacked), "person22_walking_d1")
    refuses(lambda: kth(unpacked, actions=["runing"]), ValueError, "`actions`", "'runing'")
    (packed / "walking.zip").write_bytes(b"PK not a zip file")
    refuses(lambda: kth(packed), ValueError, str(packed / "walking.zip"))


@needs_data
def test_kth_refuses_a_film_shorter_than_its_table(tmp_path):
    line = "person01_walking_d1\t\tframes\t1-75, 152-225, 325-400, 480-{}\n"
    shutil.copy(WALKING, tmp_path)
    (tmp_path / "00sequences.txt").write_text(line.format(558), encoding="utf-8")
    assert kth_sample(tmp_path, size=8).test.lengths.tolist() == [555 - 479]
    (tmp_path / "00sequences.txt").write_text(line.format(600), encoding="utf-8")
    refuses(lambda: kth_sample(tmp_path, size=8), ValueError, WALKING.name, "555", "480-600")
    (tmp_path / WALKING.name).unlink()
    refuses(lambda: kth_sample(tmp_path), FileNotFoundError, str(tmp_path))


@needs_data
def test_stretch_gives_every_frame_the_whole_range():
    with av.open(str(WALKING)) as container:
        grey = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
    assert not any(frame.min() == 0 and frame.max() == 255 for frame in grey)
    wide = [stretched(frame) for frame in grey]
    assert all(frame.min() == 0 and frame.max() == 255 for frame in wide)
    # By the definition, in double precision; half a level more where float32 rounds at a tie.
    for before, after in zip(grey[::50], wide[::50], strict=True):
        exact = 255.0 * (before - float(before.min())) / (float(before.max()) - before.min())
        assert np.abs(after - exact).max() < 0.501
    # Stretched before the resize, not after it.
    for frames, stretch in ((wide, True), (grey, False)):
        expected = resize(np.stack(frames[::10]), 64)
        found = read_video(WALKING, stretch=stretch)
        np.testing.assert_array_equal(found[::10, 0], expected)


def test_stretch_of_a_frame_of_one_colour_is_black():
    np.testing.assert_array_equal(stretched(np.full((3, 4), 77, np.uint8)), 0)


# Weizmann


@pytest.fixture(scope="module")
def people():
    return weizmann(WEIZMANN, 16)


@needs_data
def test_weizmann_is_nine_people_with_ten_actions(people):
    assert [len(people.split(split)) for split in SPLITS] == [60, 10, 20]
    assert sum(len(people.split(split).values) for split in SPLITS) == 5855
    pairs = {split: [name.split("_") for name in people.names[split]] for split in SPLITS}
    found = {split: {person for person, _ in pairs[split]} for split in SPLITS}
    assert found == {split: set(PEOPLE[split]) for split in SPLITS}
    assert [len(found[split]) for split in SPLITS] == [6, 1, 2]
    for one, other in combinations(SPLITS, 2):
        assert not found[one] & found[other]
    actions = {action for split in SPLITS for _, action in pairs[split]}
    assert len(actions) == 10
    assert len({tuple(pair) for split in SPLITS for pair in pairs[split]}) == 90
    assert people.rate == 25.0
    assert people.train.values.dtype == np.uint8
    number = people.names["test"].index("shahar_wave1")
    np.testing.assert_array_equal(
        people.test[number], read_video(WEIZMANN / "shahar_wave1.avi", 16)
    )


@needs_data
def test_weizmann_refuses_other_films_and_missing_people(tmp_path):
    for person in PEOPLE["train"] + PEOPLE["valid"]:
        shutil.copy(WEIZMANN / f"{person}_run.avi", tmp_path)
    refuses(lambda: weizmann(tmp_path), FileNotFoundError, str(tmp_path), "moshe, shahar")
    shutil.copy(WEIZMANN / "ira_run.avi", tmp_path / "holiday.avi")
    refuses(lambda: weizmann(tmp_path), ValueError, "holiday.avi", "`video_folder`")
    refuses(lambda: weizmann(tmp_path / "no"), FileNotFoundError, "`folder`", "no")


# The user's own films


def test_a_folder_of_videos(tmp_path):
    films = {}
    for number in range(10):
        path = tmp_path / f"day{number % 2}" / f"film{number}.avi"
        films[path.relative_to(tmp_path).as_posix()] = noise(3 + number, seed=number)
        write_video(path, noise(3 + number, seed=number))
    (tmp_path / "notes.txt").write_text("no film", encoding="utf-8")
    (tmp_path / "day0" / "._film0.avi").write_bytes(b"what a Mac leaves")
    (tmp_path / "day0" / "cover.png").write_bytes(b"no frame")
    dataset = video_folder(tmp_path, 8)
    assert [len(dataset.split(split)) for split in SPLITS] == [8, 1, 1]
    assert sorted(sum(dataset.names.values(), ())) == sorted(films)
    for split in SPLITS:
        for name, frames in zip(dataset.names[split], dataset.split(split), strict=True):
            np.testing.assert_array_equal(frames[:, 0], resize(films[name], 8))
    assert dataset.rate == 10.0
    assert dataset.family.width == 1 / 255
    assert dataset.observations(dataset.train[0]).max() <= 1.0

    other = video_folder(tmp_path, 8, seed=1)
    assert other.names != dataset.names
    grouped = video_folder(tmp_path, 8, group=lambda path: int(path.stem[4:]) // 3)
    groups = [{int(n[-5]) // 3 for n in grouped.names[split]} for split in SPLITS]
    assert sorted(chain.from_iterable(groups)) == [0, 1, 2, 3]


def test_a_folder_of_frame_images_in_natural_order(tmp_path):
    for film in ("a2", "a10", "b"):
        (tmp_path / film).mkdir()
        for number in range(1, 13):
            frame = np.full((5, 7), 20 * number, np.uint8)
            # Three different films: exact copies would be one.
            frame[-1, -1] += len(film)
            Image.fromarray(frame).save(tmp_path / film / f"frame{number}.png")
    # 16 bits, and a JPEG among the PNG files.
    deep = np.full((5, 7), 20 * 7 * 257, np.uint16)
    Image.fromarray(deep).save(tmp_path / "a2" / "frame7.png")
    (tmp_path / "a2" / "frame3.png").unlink()
    Image.fromarray(np.full((5, 7, 3), 60, np.uint8)).save(tmp_path / "a2" / "frame3.jpg")
    dataset = video_folder(tmp_path, 4)
    assert sorted(sum(dataset.names.values(), ())) == ["a10", "a2", "b"]
    for split in SPLITS:
        (frames,) = dataset.split(split)
        assert frames.shape == (12, 1, 4, 4)
        assert frames[:, 0, 0, 0].tolist() == [20 * number for number in range(1, 13)]
    assert dataset.rate is None
    assert video_folder(tmp_path, 4, color=True).observation_shape == (3, 4, 4)

    broken = tmp_path / "b" / "frame9.png"
    broken.write_bytes(broken.read_bytes()[:45])
    refuses(lambda: video_folder(tmp_path, 4), ValueError, str(broken), "image")


def test_color(tmp_path):
    red = np.zeros((4, 16, 16, 3), np.uint8)
    red[..., 0] = 200
    write_video(tmp_path / "red.mkv", red, pixels="bgr0")
    frames = read_video(tmp_path / "red.mkv", 8, color=True)
    assert frames.shape == (4, 3, 8, 8)
    assert frames[:, 0].min() == frames[:, 0].max() == 200
    assert frames[:, 1:].max() == 0
    grey = read_video(tmp_path / "red.mkv", 8)
    # The part of red in luma is 0.299.
    assert np.abs(grey - 0.299 * 200).max() < 2


@pytest.mark.skipif(
    not hasattr(av.video.stream.VideoStream, "set_display_rotation"),
    reason="this version of av cannot write turned films",
)
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_film_taken_sideways_stands_upright(tmp_path, turns):
    upright = np.zeros((3, 16, 16), np.uint8)
    upright[:, :8, :4] = 250
    angle = {1: 90, 2: 180, 3: -90}[turns]
    lying = np.ascontiguousarray(np.rot90(upright, -turns, axes=(1, 2)))
    write_video(tmp_path / "x.mov", lying, codec="png", rotation=angle)
    np.testing.assert_array_equal(read_video(tmp_path / "x.mov", 16)[:, 0], upright)


@pytest.mark.parametrize("size", [5, 64, 100])
def test_resize_is_that_of_image_libraries(size):
    image = noise(1, 48, 160)[0]
    theirs = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
    # Pillow rounds between rows and columns as well: half a level twice.
    assert np.abs(resize(image, size).astype(int) - np.asarray(theirs)).max() <= 1
    np.testing.assert_array_equal(resize(image[:, :48], 48), image[:, :48])


def test_decoding_from_memory_is_decoding_the_file(tmp_path):
    write_video(tmp_path / "x.avi", noise(6))
    data = io.BytesIO((tmp_path / "x.avi").read_bytes())
    frames = decode_video(data, "memory", 16)
    np.testing.assert_array_equal(frames.values, read_video(tmp_path / "x.avi", 16))
    assert frames.rate == 10.0


def test_bad_films_are_named(tmp_path):
    refuses(lambda: video_folder(tmp_path / "no"), FileNotFoundError, "`folder`", "no")
    refuses(lambda: video_folder(tmp_path), FileNotFoundError, "`folder`", "avi", str(tmp_path))
    refuses(lambda: read_video(tmp_path / "x.avi"), FileNotFoundError, "`path`", "x.avi")
    for number in range(4):
        write_video(tmp_path / f"{number}.avi", noise(40, 64, 64, seed=number))
    refuses(lambda: video_folder(tmp_path, 0), ValueError, "`size`", "0")
    whole = (tmp_path / "2.avi").read_bytes()
    (tmp_path / "2.avi").write_bytes(whole[: len(whole) // 2])
    refuses(lambda: video_folder(tmp_path), ValueError, str(tmp_path / "2.avi"), "of 40")
    (tmp_path / "2.avi").write_bytes(b"not a film")
    refuses(lambda: video_folder(tmp_path), ValueError, str(tmp_path / "2.avi"), "decoded")
    (tmp_path / "2.avi").unlink()
    (tmp_path / "3.avi").unlink()
    few = [str(tmp_path), "at least 3 films", "has 2."]
    refuses(lambda: video_folder(tmp_path), ValueError, "`folder`", *few)
    write_video(tmp_path / "4.avi", noise(3, seed=4))
    grouped = [str(tmp_path), "at least 3 groups", "has 1 (of 3 films", "`group`"]
    refuses(lambda: video_folder(tmp_path, group=lambda _: 0), ValueError, *grouped)


def test_copies_of_a_film_stay_together(tmp_path):
    for number in range(4):
        write_video(tmp_path / f"a{number}.avi", noise(4, seed=number))
        shutil.copy(tmp_path / f"a{number}.avi", tmp_path / f"b{number}.avi")
        for film in ("c", "d"):
            (tmp_path / f"{film}{number}").mkdir()
            for frame in range(2):
                image = Image.fromarray(noise(2, seed=10 + number)[frame])
                image.save(tmp_path / f"{film}{number}" / f"{frame}.png")
    for seed in range(4):
        names = video_folder(tmp_path, 8, seed=seed).names
        films = [{(name[0] in "cd", name[1]) for name in names[split]} for split in SPLITS]
        assert [len(part) for part in films] == [6, 1, 1]
        assert len(set.union(*films)) == 8

    # A copy in another group draws both groups into one split: here it makes all but two one.
    def group(path):
        return path.name[0] + str(int(path.stem[1]) // 2)

    names = video_folder(tmp_path, 8, fractions=(0.5, 0.25, 0.25), group=group).names
    halves = [{(name[0] in "cd", int(name[1]) // 2) for name in names[s]} for s in SPLITS]
    assert [len(part) for part in halves] == [2, 1, 1]


def test_the_cache_is_written_film_by_film(tmp_path, monkeypatch):
    for number in range(10):
        write_video(tmp_path / "films" / f"{number}.avi", noise(3, seed=number))
    decode, live, most = decode_video, [], 0

    def counted(*arguments, **options):
        nonlocal most
        frames = decode(*arguments, **options)
        live.append(weakref.ref(frames.values))
        most = max(most, sum(each() is not None for each in live))
        return frames

    monkeypatch.setattr("varfilter.data.video.decode_video", counted)
    kept = video_folder(tmp_path / "films", 8, cache=tmp_path / "cache")
    # The one just decoded, the one before it, which the loop has yet to let go, and the first
    # of the split, which says what rows are.
    assert len(live) == 10
    assert most <= 3
    assert kept.sha256() == video_folder(tmp_path / "films", 8).sha256()
    # Else all eight of the training part: the count can fail.
    assert most == 8


def test_the_cache_is_mapped_and_equal(tmp_path, monkeypatch):
    folder, cache = tmp_path / "films", tmp_path / "cache"
    for number in range(4):
        write_video(folder / f"{number}.avi", noise(5 + number, seed=number))
    plain = video_folder(folder, 8)
    first = video_folder(folder, 8, cache=cache)
    (kept,) = cache.iterdir()

    def decode(*_, **__):
        raise AssertionError("decoded again")

    with monkeypatch.context() as patch:
        patch.setattr("varfilter.data.video.decode_video", decode)
        second = video_folder(folder, 8, cache=cache)
        # Another size, and a film that changed, are other sets.
        with pytest.raises(AssertionError, match="decoded again"):
            video_folder(folder, 9, cache=cache)
        os.utime(folder / "1.avi", (0, 0))
        with pytest.raises(AssertionError, match="decoded again"):
            video_folder(folder, 8, cache=cache)
    # What was interrupted left nothing.
    assert list(cache.iterdir()) == [kept]
    for dataset in (first, second):
        assert dataset.sha256() == plain.sha256()
        assert dataset.names == plain.names
        assert dataset.rate == plain.rate == 10.0
        assert all(isinstance(dataset.split(split).values, np.memmap) for split in SPLITS)

    third = video_folder(folder, 8, cache=cache)
    assert third.sha256() == plain.sha256()
    (changed,) = set(cache.iterdir()) - {kept}
    values = changed / "train" / "values.npy"
    values.write_bytes(values.read_bytes()[:150])
    refuses(lambda: video_folder(folder, 8, cache=cache), ValueError, "`cache`", str(changed))


# Moving digits


@pytest.fixture(scope="module")
def digits():
    return moving_digits(300, 40, 50, num_steps=30, size=32, seed=3)


def test_moving_digits_are_the_same_for_the_same_seed(digits):
    again = moving_digits(300, 40, 50, num_steps=30, size=32, seed=3)
    assert digits.sha256() == again.sha256()
    other = moving_digits(300, 40, 50, num_steps=30, size=32, seed=4)
    assert digits.sha256() != other.sha256()
    # A split does not depend on the counts of the others.
    small = moving_digits(7, 3, 50, num_steps=30, size=32, seed=3)
    np.testing.assert_array_equal(small.test.values, digits.test.values)


def test_moving_digits_are_black_or_white_and_of_their_split(digits):
    assert [len(digits.split(split)) for split in SPLITS] == [300, 40, 50]
    assert digits.train.values.shape == (9000, 1, 32, 32)
    assert digits.train.values.dtype == np.uint8
    assert set(np.unique(digits.train.values)) == {0, 1}
    assert digits.family.distribution is Bernoulli
    assert digits.observations(digits.train[0]).max() == 1.0
    images = {
        split: {word.split("#")[1] for name in digits.names[split] for word in name.split()}
        for split in SPLITS
    }
    assert len(images["train"]) > 400
    for one, other in combinations(SPLITS, 2):
        assert not images[one] & images[other]


def test_a_digit_flies_straight_and_leaves_walls_at_random():
    films = moving_digits(400, 1, 1, num_steps=40, num_digits=1, seed=5)
    frames = films.train.values[:, 0].reshape(400, 40, 64, 64)
    # The first row and column with white: they move as the digit does, in whole pixels.
    corner = np.stack([frames.any(3).argmax(2), frames.any(2).argmax(2)], -1)
    step = np.diff(corner, axis=1)
    assert np.all(np.abs(step) <= 6)
    assert np.mean(np.any(step != 0, -1)) > 0.95
    # The same glyph in every frame of a film: nothing is cut off at a wall.
    count = frames.sum((2, 3))
    assert np.all(count == count[:, :1])
    # Positions are rounded: in straight flight, steps differ by one pixel at most.
    bends = np.abs(np.diff(step, axis=1)).max(-1) > 1
    assert 0.03 < bends.mean() < 0.3
    # A mirror would keep the speed, up to the rounding of both ends over 6 steps.
    speed = np.linalg.norm(corner[:, 6:] - corner[:, :-6], axis=-1) / 6
    windows = np.lib.stride_tricks.sliding_window_view(bends, 5, axis=1)
    straight = np.where(windows.any(-1), np.nan, speed)
    spread = np.nanmax(straight, 1) - np.nanmin(straight, 1)
    assert np.mean(spread > 2 * np.sqrt(2) / 6) > 0.8


def test_moving_digits_refuse_bad_sizes():
    refuses(lambda: moving_digits(0), ValueError, "`num_train`", "0")
    refuses(lambda: moving_digits(size=15), ValueError, "`size`", "at least 16", "15")
    refuses(lambda: moving_digits(seed=-1), ValueError, "`seed`", "-1")
    refuses(lambda: moving_digits(num_digits=-1), ValueError, "`num_digits`", "-1")
