"""The scripts of the pictures that need no run; those of the tutorials are drawn by their tests."""

import pytest

from commands import script
from pages import DOCS

PICTURES = DOCS / "pictures"


@pytest.mark.parametrize(
    ("name", "options", "made"),
    [
        ("diagrams", (), ("one_step.png", "learning.png")),
        ("results", (), ("results.png",)),
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
    known = {"diagrams", "results", "inference", "sensors", "music", "speech", "video", "drawing"}
    assert {path.stem for path in PICTURES.glob("*.py")} == known
