"""Named sets: known without their readers, found in the data folder, read with options."""

import subprocess
import sys

import pytest

from real_data import DATA, needs_data
from refusals import refuses
from varfilter.data.sets.registry import CATALOGUE, data_folder, entry_named, locate, read_set

pytestmark = pytest.mark.usefixtures("as_users_run_it")

# What only those need who read sound, video or music.
READERS = """
import sys
import varfilter.data.sets.checks, varfilter.data.sets.fetch, varfilter.data.sets.registry
ours = {f"varfilter.data.{name}" for name in (
    "audio", "midi", "rolls", "video", "sets.digits", "sets.kth", "sets.timit", "sets.weizmann")}
print(sorted((ours | {"av", "mido", "PIL", "scipy", "sklearn", "soundfile"}) & set(sys.modules)))
"""


def test_no_reader_is_imported_until_a_set_is_read():
    # Another process: in this one, other tests have imported the readers.
    done = subprocess.run(
        [sys.executable, "-c", READERS], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_entry_names_functions_that_are_there(name):
    entry = CATALOGUE[name]
    assert callable(entry.read)
    assert entry.check is None or callable(entry.check)
    assert (entry.check is not None) == (name == "timit")


@needs_data
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_set_has_the_medium_and_the_observations_that_its_entry_says(name, monkeypatch):
    monkeypatch.setenv("VARFILTER_DATA", str(DATA))
    entry = CATALOGUE[name]
    if entry.places and locate(entry, DATA) is None:
        pytest.skip(f"{name} is not in {DATA}")
    few = {"num_train": 2, "num_valid": 1, "num_test": 1} if name == "moving-digits" else {}
    dataset = read_set(entry, **few)
    assert (dataset.name, dataset.medium) == (name, entry.medium)
    assert dataset.observation_shape == entry.observation


def test_wrong_names_places_and_options_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    refuses(lambda: entry_named("jbs"), ValueError, "'jbs'", "Did you mean 'jsb'?", "kth-sample")
    refuses(lambda: read_set(CATALOGUE["jsb"], sise=3), TypeError, "`read_rolls`", "'sise'", "name")
    refuses(
        lambda: read_set(CATALOGUE["jsb"]),
        FileNotFoundError, str(tmp_path / "music"), "varfilter data fetch jsb",
    )  # fmt: skip
    refuses(lambda: read_set(CATALOGUE["timit"]), FileNotFoundError, "catalog.ldc.upenn.edu")
    refuses(
        lambda: read_set(CATALOGUE["moving-digits"], at=tmp_path), ValueError, "`at`", "simulated"
    )
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "jsb_chorales.npz").write_bytes(b"PK damaged")
    refuses(
        lambda: read_set(CATALOGUE["jsb"]),
        ValueError, "jsb_chorales.npz", "Delete", "varfilter data fetch jsb --again",
    )  # fmt: skip


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path / "mine"))
    assert data_folder() == tmp_path / "mine"
    monkeypatch.delenv("VARFILTER_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = {
        "linux": tmp_path / "caches" / "varfilter",
        "darwin": tmp_path / "Library" / "Caches" / "varfilter",
    }
    for platform, folder in expected.items():
        monkeypatch.setattr(sys, "platform", platform)
        assert data_folder() == folder
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == tmp_path / ".cache" / "varfilter"
