"""EmoDB, read by actors: from made-up recordings, and the real ones where they are."""

import numpy as np
import pytest

from real_data import DATA, needs_data
from refusals import refuses
from varfilter.data.audio import write_wav
from varfilter.data.sets.emodb import SPEAKERS, emodb
from varfilter.data.sets.registry import CATALOGUE, locate
from varfilter.experiments import experiment_named
from varfilter.media import load


def recordings(folder, names):
    rng = np.random.default_rng(0)
    for number, name in enumerate(names):
        write_wav(rng.normal(0, 100 + number, 900), folder / f"{name}.wav", 16000)


def test_actors_are_in_one_part_each(tmp_path):
    recordings(tmp_path, ("03a01Fa", "08a01Na", "08b09Wb", "15a02Lc", "16a04Ta"))
    dataset = emodb(tmp_path, frame_size=100)
    assert dataset.names == {
        "train": ("08a01Na", "08b09Wb"),
        "valid": ("15a02Lc",),
        "test": ("03a01Fa", "16a04Ta"),
    }
    assert dataset.observation_shape == (100,)
    assert dataset.name == "emodb"
    recordings(tmp_path, ("song",))
    refuses(lambda: emodb(tmp_path), ValueError, "song.wav", "`audio_folder`")
    (tmp_path / "song.wav").unlink()
    (tmp_path / "15a02Lc.wav").unlink()
    refuses(lambda: emodb(tmp_path), ValueError, "no utterance for valid")


def test_the_archive_gives_its_sounds_alone():
    ((item,),) = CATALOGUE["emodb"].sources
    assert item.place("wav/03a01Fa.wav") == "03a01Fa.wav"
    assert [item.place(name) for name in ("lablaut/03a01Fa.lablaut", "erkennung.txt")] == [None] * 2


def test_experiments_of_speech_are_made_for_it_too():
    ours, paper = experiment_named("srnn-emodb-avf"), experiment_named("srnn-timit-avf")
    assert (ours.model, ours.filter, ours.schedule) == (paper.model, paper.filter, paper.schedule)
    assert (ours.data.source, ours.published) == ("emodb", None)


@needs_data
def test_the_real_recordings_are_those_expected():
    path = locate(CATALOGUE["emodb"], DATA)
    if path is None:
        pytest.skip("EmoDB is not here")
    dataset = load("emodb", at=path)
    assert dataset.sha256() == CATALOGUE["emodb"].expected.sha256
    for split, own in SPEAKERS.items():
        assert {name[:2] for name in dataset.names[split]} == set(own)
