"""The user's own videos: folders of them or of images, copies, groups and what is stored."""

import io
import os
import shutil
import warnings
import weakref
from dataclasses import replace
from functools import partial
from itertools import chain

import av
import numpy as np
import pytest
from PIL import Image

from refusals import refuses
from varfilter.data.dataset import SPLITS
from varfilter.data.video import (
    FrameForm,
    decode_video,
    read_video,
    read_videos,
    resize,
    stretched,
    video_folder,
)
from varfilter.media import load, new_sequences, source_of
from videos import noise, write_video


def test_stretch_of_a_frame_of_one_colour_is_black():
    np.testing.assert_array_equal(stretched(np.full((3, 4), 77, np.uint8)), 0)


def test_a_folder_of_videos(tmp_path):
    videos = {}
    for number in range(10):
        path = tmp_path / f"day{number % 2}" / f"video{number}.avi"
        videos[path.relative_to(tmp_path).as_posix()] = noise(3 + number, seed=number)
        write_video(path, noise(3 + number, seed=number))
    (tmp_path / "notes.txt").write_text("no video", encoding="utf-8")
    (tmp_path / "day0" / "._video0.avi").write_bytes(b"what a Mac leaves")
    (tmp_path / "day0" / "cover.png").write_bytes(b"no frame")
    dataset = video_folder(tmp_path, 8)
    assert [len(dataset.split(split)) for split in SPLITS] == [8, 1, 1]
    assert sorted(sum(dataset.names.values(), ())) == sorted(videos)
    for split in SPLITS:
        for name, frames in zip(dataset.names[split], dataset.split(split), strict=True):
            np.testing.assert_array_equal(frames[:, 0], resize(videos[name], 8))
    assert dataset.rate == 10.0
    assert dataset.family.width == 1 / 255
    assert dataset.observations(dataset.train[0]).max() <= 1.0

    other = video_folder(tmp_path, 8, seed=1)
    assert other.names != dataset.names
    grouped = video_folder(tmp_path, 8, group=lambda path: int(path.stem[5:]) // 3)
    groups = [{int(n[-5]) // 3 for n in grouped.names[split]} for split in SPLITS]
    assert sorted(chain.from_iterable(groups)) == [0, 1, 2, 3]


def test_a_folder_of_frame_images_in_natural_order(tmp_path):
    for video in ("a2", "a10", "b"):
        (tmp_path / video).mkdir()
        for number in range(1, 13):
            frame = np.full((5, 7), 20 * number, np.uint8)
            # Three different videos: exact copies would be one.
            frame[-1, -1] += len(video)
            Image.fromarray(frame).save(tmp_path / video / f"frame{number}.png")
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
    reason="this version of av cannot write turned videos",
)
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_video_taken_sideways_stands_upright(tmp_path, turns):
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
    frames = decode_video(data, "memory", FrameForm(16))
    np.testing.assert_array_equal(frames.values, read_video(tmp_path / "x.avi", 16))
    assert frames.rate == 10.0


def test_bad_videos_are_named(tmp_path):
    refuses(lambda: video_folder(tmp_path / "no"), FileNotFoundError, "`folder`", "no")
    refuses(lambda: video_folder(tmp_path), FileNotFoundError, "`folder`", "avi", str(tmp_path))
    refuses(lambda: read_video(tmp_path / "x.avi"), FileNotFoundError, "`path`", "x.avi")
    for number in range(4):
        write_video(tmp_path / f"{number}.avi", noise(40, 64, 64, seed=number))
    refuses(lambda: video_folder(tmp_path, 0), ValueError, "`size`", "0")
    whole = (tmp_path / "2.avi").read_bytes()
    (tmp_path / "2.avi").write_bytes(whole[: len(whole) // 2])
    refuses(lambda: video_folder(tmp_path), ValueError, str(tmp_path / "2.avi"), "of 40")
    (tmp_path / "2.avi").write_bytes(b"not a video")
    refuses(lambda: video_folder(tmp_path), ValueError, str(tmp_path / "2.avi"), "decoded")
    (tmp_path / "2.avi").unlink()
    (tmp_path / "3.avi").unlink()
    few = [str(tmp_path), "at least 3 videos", "has 2."]
    refuses(lambda: video_folder(tmp_path), ValueError, "`folder`", *few)
    write_video(tmp_path / "4.avi", noise(3, seed=4))
    grouped = [str(tmp_path), "at least 3 groups", "has 1 (of 3 videos", "`group`"]
    refuses(lambda: video_folder(tmp_path, group=lambda _: 0), ValueError, *grouped)


def test_copies_of_a_video_stay_together(tmp_path):
    for number in range(4):
        write_video(tmp_path / f"a{number}.avi", noise(4, seed=number))
        shutil.copy(tmp_path / f"a{number}.avi", tmp_path / f"b{number}.avi")
        for video in ("c", "d"):
            (tmp_path / f"{video}{number}").mkdir()
            for frame in range(2):
                image = Image.fromarray(noise(2, seed=10 + number)[frame])
                image.save(tmp_path / f"{video}{number}" / f"{frame}.png")
    for seed in range(4):
        names = video_folder(tmp_path, 8, seed=seed).names
        videos = [{(name[0] in "cd", name[1]) for name in names[split]} for split in SPLITS]
        assert [len(part) for part in videos] == [6, 1, 1]
        assert len(set.union(*videos)) == 8

    # A copy in another group draws both groups into one split: here it makes all but two one.
    def group(path):
        return path.name[0] + str(int(path.stem[1]) // 2)

    names = video_folder(tmp_path, 8, fractions=(0.5, 0.25, 0.25), group=group).names
    halves = [{(name[0] in "cd", int(name[1]) // 2) for name in names[s]} for s in SPLITS]
    assert [len(part) for part in halves] == [2, 1, 1]


def test_the_cache_is_written_one_by_one(tmp_path, monkeypatch):
    for number in range(10):
        write_video(tmp_path / "videos" / f"{number}.avi", noise(3, seed=number))
    decode, live, most = decode_video, [], 0

    def counted(*arguments, **options):
        nonlocal most
        frames = decode(*arguments, **options)
        live.append(weakref.ref(frames.values))
        most = max(most, sum(each() is not None for each in live))
        return frames

    monkeypatch.setattr("varfilter.data.video.decode_video", counted)
    stored = video_folder(tmp_path / "videos", 8, cache=tmp_path / "cache")
    # The one just decoded, the one before it, which the loop has yet to let go, and the first
    # of the split, which says what rows are.
    assert len(live) == 10
    assert most <= 3
    assert stored.sha256() == video_folder(tmp_path / "videos", 8).sha256()
    # Else all eight of the training part: the count can fail.
    assert most == 8


def test_the_cache_is_mapped_and_equal(tmp_path, monkeypatch):
    folder, cache = tmp_path / "videos", tmp_path / "cache"
    for number in range(4):
        write_video(folder / f"{number}.avi", noise(5 + number, seed=number))
    plain = video_folder(folder, 8)
    first = video_folder(folder, 8, cache=cache)
    (stored,) = cache.iterdir()

    def decode(*_, **__):
        raise AssertionError("decoded again")

    with monkeypatch.context() as patch:
        patch.setattr("varfilter.data.video.decode_video", decode)
        second = video_folder(folder, 8, cache=cache)
        # Another size, and a video that changed, are other sets.
        with pytest.raises(AssertionError, match="decoded again"):
            video_folder(folder, 9, cache=cache)
        os.utime(folder / "1.avi", (0, 0))
        with pytest.raises(AssertionError, match="decoded again"):
            video_folder(folder, 8, cache=cache)
    # What was interrupted left nothing.
    assert list(cache.iterdir()) == [stored]
    for dataset in (first, second):
        assert dataset.sha256() == plain.sha256()
        assert dataset.names == plain.names
        assert dataset.rate == plain.rate == 10.0
        assert all(isinstance(dataset.split(split).values, np.memmap) for split in SPLITS)

    third = video_folder(folder, 8, cache=cache)
    assert third.sha256() == plain.sha256()
    (changed,) = set(cache.iterdir()) - {stored}
    values = changed / "train" / "values.npy"
    values.write_bytes(values.read_bytes()[:150])
    refuses(lambda: video_folder(folder, 8, cache=cache), ValueError, "`cache`", str(changed))


def test_a_crop_keeps_the_middle_and_the_aspect(tmp_path):
    images = noise(3, 12, 20)
    write_video(tmp_path / "x.avi", images)
    found = read_video(tmp_path / "x.avi", 12, crop=True)
    # As large as the square already: nothing is resized, and the middle is there to the bit.
    np.testing.assert_array_equal(found[:, 0], images[:, :, 4:16])
    squeezed = read_video(tmp_path / "x.avi", 12)
    assert (squeezed != found).any()


@pytest.mark.parametrize(("rate", "kept"), [(10, range(9)), (5, range(0, 9, 2)), (3, (0, 4, 7))])
def test_a_frame_rate_leaves_frames_out(tmp_path, rate, kept):
    images = noise(9)
    write_video(tmp_path / "x.avi", images, rate=10)
    found = decode_video(tmp_path / "x.avi", "x", FrameForm(8, frame_rate=rate))
    np.testing.assert_array_equal(found.values, read_video(tmp_path / "x.avi", 8)[list(kept)])
    assert found.rate == rate


def test_frames_are_not_made_up(tmp_path):
    write_video(tmp_path / "x.avi", noise(9), rate=10)
    words = ["`frame_rate` is 25", "10 frames a second", "at most 10"]
    refuses(lambda: read_video(tmp_path / "x.avi", 8, frame_rate=25), ValueError, *words)
    for bad in (0, -1.0, float("nan")):
        call = partial(read_video, tmp_path / "x.avi", 8, frame_rate=bad)
        refuses(call, ValueError, "`frame_rate` must be positive")


def test_a_slow_video_does_not_end_the_reading_of_a_folder(tmp_path):
    for number, rate in enumerate((30, 30, 10, 30)):
        write_video(tmp_path / "all" / f"{number}.avi", noise(9, seed=number), rate=rate)
    found = video_folder(tmp_path / "all", 8, frame_rate=15)
    lengths = np.concatenate([part.lengths for part in (found.train, found.valid, found.test)])
    assert sorted(lengths) == [5, 5, 5, 9]
    assert found.rate is None
    assert any("1 of 4 videos was slower than the 15 frames" in note for note in found.notes)
    # A rate that none of them has is a mistake.
    words = ["`frame_rate` is 60", "30 frames a second at most", "Give at most 30"]
    refuses(lambda: video_folder(tmp_path / "all", 8, frame_rate=60), ValueError, *words)


def test_a_new_video_that_is_slower_or_faster_than_those_of_the_run_is_said(tmp_path):
    for number in range(3):
        write_video(tmp_path / "all" / f"{number}.avi", noise(9, seed=number), rate=20)
    write_video(tmp_path / "slow.avi", noise(9), rate=10)
    source = source_of(tmp_path / "all")
    for given, rate, speed in ((None, 20, "faster"), (15.0, 15, "faster"), (5.0, 5, None)):
        asked = replace(source, size=8, frame_rate=given)
        dataset = load(asked)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            (new,) = new_sequences(dataset, asked, tmp_path / "slow.avi")
        assert len(new.xs) == (9 if speed else 5)
        assert [f"the run have {rate}" in str(each.message) for each in said] == [True] * bool(
            speed
        )
        assert all(f"is {speed} for the model" in str(each.message) for each in said)


def test_a_folder_has_its_own_name_wherever_one_stands(tmp_path, monkeypatch):
    """In the folder itself its name was empty, and so was that of its sequences."""
    for number in range(3):
        write_video(tmp_path / "clips" / f"{number}.avi", noise(3, seed=number))
    monkeypatch.chdir(tmp_path / "clips")
    assert video_folder(".", 8).name == "clips"
    (tmp_path / "frames").mkdir()
    for number in range(3):
        Image.fromarray(noise(1)[0]).save(tmp_path / "frames" / f"{number}.png")
    monkeypatch.chdir(tmp_path / "frames")
    assert [name for name, _ in read_videos(".", FrameForm(8))] == ["frames"]


def test_a_folder_in_colour_cropped_and_thinned(tmp_path):
    for number in range(3):
        grey = noise(8, 12, 20, seed=number)
        write_video(tmp_path / f"{number}.avi", np.stack([grey] * 3, -1), pixels="bgr0", rate=10)
    found = video_folder(tmp_path, 12, color=True, crop=True, frame_rate=5)
    assert found.observation_shape == (3, 12, 12)
    assert found.rate == 5.0
    assert [len(part[0]) for part in (found.train, found.valid, found.test)] == [4, 4, 4]
    assert any("cut to the square in the middle" in note for note in found.notes)
    assert any("thinned from 10 to 5 frames" in note for note in found.notes)
    # Options that are as before find what was stored before.
    assert FrameForm(12).options == [12, False, False]
