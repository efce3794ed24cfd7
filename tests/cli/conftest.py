"""A run that nobody interrupted, trained once for all tests of the commands."""

import shutil
from pathlib import Path

import pytest

from commands import succeed
from songs import TINY, write_songs


@pytest.fixture(scope="session")
def songs(tmp_path_factory):
    path = tmp_path_factory.mktemp("songs") / "songs.npz"
    write_songs(path)
    return path


@pytest.fixture(scope="session")
def unbroken(songs, tmp_path_factory):
    """(the folder of a run that nobody interrupted, what was printed, on stderr)."""
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    done = succeed("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", folder)
    return folder, done.out, done.err


@pytest.fixture
def run(unbroken, tmp_path):
    """The folder of a finished run, to be spoiled."""
    return Path(shutil.copytree(unbroken[0], tmp_path / "run"))
