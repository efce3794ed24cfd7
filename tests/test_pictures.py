"""The scripts of the pictures that need no run; those of the tutorials are drawn by their tests."""

import numpy as np
import pytest

from commands import script
from pages import DOCS

PICTURES = DOCS / "pictures"


@pytest.mark.parametrize(
    ("name", "options", "made"),
    [
        ("diagrams", (), ("one_step.png", "learning.png")),
        ("results", (), ("results.png",)),
        ("iterations", (), ("figure_4a.png", "figure_4b.png")),
        pytest.param("inference", ("--updates", 2), ("inference.png",), marks=pytest.mark.slow),
    ],
)
def test_a_script_makes_its_pictures(name, options, made, tmp_path):
    from PIL import Image

    done = script(PICTURES / f"{name}.py", *options, "--out", tmp_path)
    assert done.code == 0, done.err
    made = {*made, *(each.replace(".png", "_narrow.png") for each in made)}
    assert {path.name for path in tmp_path.iterdir()} == made
    for each in made:
        with Image.open(tmp_path / each) as drawn, Image.open(PICTURES / each) as kept:
            assert drawn.size == kept.size
            assert len(drawn.getcolors()) > 8


def test_every_script_is_run_by_a_test():
    known = {
        "diagrams",
        "results",
        "iterations",
        "inference",
        "sensors",
        "music",
        "speech",
        "video",
        "drawing",
    }
    assert {path.stem for path in PICTURES.glob("*.py")} == known | {"walkers"}


def test_walkers_walk_and_a_clip_of_fewer_frames_is_its_beginning(tmp_path):
    from PIL import Image, ImageSequence

    def clips(name, frames):
        options = ("--clips", 3, "--frames", frames, "--seed", 1)
        done = script(PICTURES / "walkers.py", tmp_path / name, *options)
        assert done.code == 0, done.err
        found = []
        for path in sorted((tmp_path / name).iterdir()):
            with Image.open(path) as film:
                images = [np.asarray(each.convert("L")) for each in ImageSequence.Iterator(film)]
            found.append(np.stack(images).astype(np.float64))
        return found

    whole, begun = clips("whole", 12), clips("begun", 5)
    for long, short in zip(whole, begun, strict=True):
        assert long.shape == (12, 64, 64)
        np.testing.assert_array_equal(long[:5], short)
        changes = np.abs(np.diff(long, axis=0))
        # The wall stands still but for the noise, of 1.5 levels, twice; the figure does not.
        assert np.median(changes) < 3.0
        assert changes.max() > 50.0
