"""What a command waits for before it begins: only what it needs is imported."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from commands import SHARED, command, refuse
from varfilter.cli import COMMANDS

pytestmark = pytest.mark.usefixtures("as_users_run_it")

PROGRAM = """
import json, sys
from varfilter.cli import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def imported(*words, cwd=None):
    """The modules that a command imports, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)],
        env=os.environ | SHARED, cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("words", [("--help",), (), ("data",), ("--version",)])
def test_help_waits_for_nothing(words):
    modules = imported(*words)
    assert not modules & {"jax", "numpy", "tyro", "rich", "equinox"}


def test_help_of_a_command_does_not_wait_for_jax():
    assert not imported("filter", "--help") & {"jax", "numpy", "equinox"}


def test_a_table_is_trained_without_the_readers_of_sound_video_and_music(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    text = "\n".join(["warm,cold", *(f"{a},{b}" for a, b in rows)])
    (tmp_path / "x.csv").write_text(text + "\n")
    small = ("--max-updates", 1, "--schedule.batch-size", 2, "--filter.inference.hidden-size", 2)
    small += ("--num-members", 1)
    modules = imported("train", "x.csv", *small, "--quiet", cwd=tmp_path)
    assert "varfilter.runs.training" in modules
    others = {"audio", "video", "midi", "rolls", "recordings", "sphere"}
    assert not modules & {f"varfilter.data.{name}" for name in others}
    assert not modules & {"matplotlib", "soundfile", "av", "mido", "PIL"}
    assert not any(name.startswith(("varfilter.report", "varfilter.plots")) for name in modules)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trian", "x.csv"), "Did you mean 'train'?"),
        (("lst",), "Did you mean 'list'?"),
        (("data", "chekc", "jsb"), "Did you mean 'data check'?"),
        (("--quiet",), "There is no command `varfilter --quiet`."),
    ],
)
def test_a_word_that_is_no_command_has_the_nearest_one_named(words, said):
    assert said in refuse(*words)


def test_the_help_names_every_command_on_one_screen():
    out = command("--help").out
    for name in COMMANDS:
        assert f"varfilter {name} " in out
    # A line is for the prompt.
    assert len(out.splitlines()) < 24
    assert max(map(len, out.splitlines())) < 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name):
    code, out, _ = command(*name.split(), "--help")
    assert code == 0
    assert out.startswith(f"usage: varfilter {name} ")
    assert f"varfilter {name}" in out.split("example", 1)[1]
    whole = command(*name.split(), "--help-all").out
    assert max(map(len, (out + whole).splitlines())) <= 80
    # Broken between words alone: on a wider screen they are the same words.
    wide = command(*name.split(), "--help-all", env={"COLUMNS": "100"}).out
    assert wide.split() == whole.split()
