"""The script that counts how the sources are built, on a tree where the answers are known.

And what the READMEs of the rooms say is in them, which is what is there.
"""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def house():
    spec = importlib.util.spec_from_file_location("house", ROOT / "benchmarks" / "house.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_counts_of_a_small_tree(tmp_path):
    files = {
        "__init__.py": "",
        "a.py": "from varfilter.b import x\nimport varfilter.c\n" + "\n" * 60,
        "b.py": "from varfilter import c\nx = 1\n",
        "c.py": 'def f(medium):\n    return medium == "music"\n',
        "d.py": '# medium == "music"\nfrom varfilter.a import y\nkinds = ["music"]\n',
        "e.py": "def g(found):\n    return isinstance(found.model, TableSizes)\n",
        "f.py": 'same = type(mine.model) is type(EXPERIMENTS["own"].model)\n',
        "media/__init__.py": "",
        "media/sound.py": 'is_sound = medium == "sound"\n',
        "data/midi.py": "def read(roll):\n    assert roll.shape[1] == NUM_KEYS\n",
    }
    for name, text in files.items():
        path = tmp_path / "varfilter" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = house().counts(tmp_path)
    assert found["files"] == len(files)
    assert found["lines"] == sum(text.count("\n") for text in files.values())
    assert "a.py" not in found["modules of fewer than 60 lines"]
    assert found["modules imported in exactly one place"] == ["a.py", "b.py"]
    asking = found["files outside media/ that ask for the kind"]
    assert [line.split(": ")[0] for line in asking] == ["c.py:2", "e.py:2", "f.py:1"]


def test_no_file_outside_media_asks_which_kind_of_data_it_is():
    found = house().counts(ROOT / "src")
    assert found["files outside media/ that ask for the kind"] == []


@pytest.mark.parametrize("room", ["data", "media", "runs"])
def test_the_readme_of_a_room_names_every_module_in_it_and_none_besides(room):
    folder = ROOT / "src" / "varfilter" / room
    text = (folder / "README.md").read_text(encoding="utf-8")
    # `NAME.py` is one that a reader writes; paths from the root are of files that are there.
    named = set(re.findall(r"`([\w/]+\.py)`", text)) - {"sets/NAME.py"}
    paths = {path for path in named if (ROOT / path).is_file()}
    modules = {path.relative_to(folder) for path in folder.rglob("*.py") if path.stem != "__init__"}
    assert len({path.name for path in modules}) == len(modules)  # a file name says which it is
    inside = {str(path) for path in modules} | {path.name for path in modules}
    assert named - paths <= inside
    assert {path.name for path in modules} == {Path(path).name for path in named - paths}
