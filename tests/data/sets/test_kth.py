"""KTH Actions: its table, its sub-sequences, and its videos in zip files or unpacked."""

import shutil
import zipfile
from itertools import pairwise

import av
import numpy as np
import pytest

from real_data import DATA, needs_data
from refusals import refuses
from varfilter.data.dataset import SPLITS
from varfilter.data.sets.videos import ACTIONS, PERSONS, kth, kth_sample, kth_table
from varfilter.data.video import read_video, resize, stretched
from varfilter.distributions import DiscretizedNormal

KTH = DATA / "video" / "kth_sample"
WALKING = KTH / "person01_walking_d1_uncomp.avi"


@pytest.fixture(scope="module")
def table():
    return kth_table(KTH / "00sequences.txt")


@needs_data
def test_kth_table_has_the_counts_and_lengths_that_the_paper_code_reads(table):
    # Sequences; mean, shortest and longest, without the last frame, which that code left out.
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
        assert before.video != after.video or before.end < after.start
    # The seven lines that overlap by a slip.
    assert {c.video for c in table if f"{c.start}-{c.end}" not in lines[c.video]} == {
        "person12_handclapping_d4", "person15_handclapping_d2", "person16_handwaving_d4",
        "person17_boxing_d1", "person21_boxing_d2", "person21_handclapping_d1",
        "person03_walking_d4",
    }  # fmt: skip
    by_video = {clip.video: [] for clip in table}
    for clip in table:
        by_video[clip.video].append((clip.start, clip.end))
    assert len(by_video) == 599
    assert by_video["person16_handwaving_d4"] == [(1, 104), (105, 206), (207, 311), (312, 456)]
    assert by_video["person21_handclapping_d1"] == [(1, 118), (119, 224), (225, 365), (366, 500)]
    # Not in the order of time in the file, but no overlap.
    assert by_video["person07_jogging_d4"] == [(1, 64), (194, 264), (270, 332), (490, 570)]


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
def test_kth_from_zip_files_equals_kth_from_videos(tmp_path):
    # The real video as one person of each split, and one action.
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
        for videos in sets:
            np.testing.assert_array_equal(videos.split(split)[0], whole[:75])
            np.testing.assert_array_equal(videos.split(split)[1], whole[151:225])
    assert sets[0].sha256() == sets[1].sha256()

    (unpacked / "person22_walking_d1_uncomp.avi").unlink()
    refuses(lambda: kth(unpacked), FileNotFoundError, str(unpacked), "person22_walking_d1")
    refuses(lambda: kth(unpacked, actions=["runing"]), ValueError, "`actions`", "'runing'")
    (packed / "walking.zip").write_bytes(b"PK not a zip file")
    refuses(lambda: kth(packed), ValueError, str(packed / "walking.zip"))


@needs_data
def test_kth_refuses_a_video_shorter_than_its_table(tmp_path):
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
