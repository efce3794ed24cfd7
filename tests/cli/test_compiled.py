"""Compiled programs are kept for the next start: found again, bounded, and never in the way."""

import os
import subprocess
import sys

import pytest

from varfilter.cli.compiled import WHOLE, forget_oldest, keep_compiled

# A program of its own, compiled as a command would; it says how many came from the cache.
PROGRAM = """
from varfilter.cli.compiled import keep_compiled
keep_compiled()
import jax
found = []
jax.monitoring.register_event_listener(
    lambda name, **_: found.append(name) if name.endswith("cache_hits") else None
)
print(float(jax.jit(lambda x: jax.numpy.sin(x) * 3)(1.5)), len(found))
"""


def run(folder, **environment):
    """What PROGRAM prints: its number, and how many programs were found."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"VARFILTER_COMPILED": str(folder)} | environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    number, found = done.stdout.split()
    return float(number), int(found)


def test_a_live_line_is_computed_where_it_came():
    program = """
from varfilter import cli
cli._command = lambda name: type("Nothing", (), {"main": staticmethod(lambda *words: 0)})
cli._run(WORDS)
import jax
print(jax.config.read("jax_cpu_enable_async_dispatch"))
"""
    for words, is_async in (
        (["filter", "runs/a", "-"], "False"),
        (["filter", "runs/a", "a.csv"], "True"),
    ):
        text = program.replace("WORDS", repr(words))
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [is_async]


def programs(folder):
    return [p for p in folder.rglob("*") if p.is_file() and p.suffix != WHOLE]


def test_a_second_start_finds_what_the_first_compiled(tmp_path):
    number, found = run(tmp_path)
    assert found == 0
    kept = programs(tmp_path)
    assert kept
    again, found = run(tmp_path)
    assert (again, found) == (number, len(kept))
    # One that was cut short as it was written is compiled again, without a word.
    cut = max(kept, key=lambda path: path.stat().st_size)
    content = cut.read_bytes()
    cut.write_bytes(content[: len(content) // 2])
    cut.with_name(cut.name + WHOLE).unlink()
    again, found = run(tmp_path)
    assert (again, found) == (number, len(kept) - 1)
    assert len(cut.read_bytes()) == len(content)


def test_where_others_may_write_nothing_is_kept(tmp_path):
    run(tmp_path)
    (folder,) = tmp_path.iterdir()
    folder.chmod(0o777)  # whatever lies there would be run
    assert run(tmp_path)[1] == 0
    assert run("off")[1] == 0
    # What the user told JAX itself holds.
    own = tmp_path / "own"
    run(tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=str(own),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")  # fmt: skip
    assert programs(own)
    assert not (tmp_path / "ours").exists()


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("here")
    monkeypatch.setenv("VARFILTER_COMPILED", str(file))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    keep_compiled()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_the_oldest_programs_go_first(tmp_path):
    for age in range(5):
        path = tmp_path / f"program-{age}"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    forget_oldest(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program-0", "program-1"]
    forget_oldest(tmp_path, 250)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture(autouse=True)
def _no_setting_is_left(monkeypatch):
    for name in ("TF_CPP_MIN_LOG_LEVEL", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
