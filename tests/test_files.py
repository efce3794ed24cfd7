"""Files that are written whole or not at all, and what killed processes leave of them."""

import os
import subprocess
import sys
import threading

import pytest

from varfilter import _files

WRITER = """
import os, sys
from pathlib import Path
from varfilter._files import written
with written(Path(sys.argv[1])) as write:
    write(b"half")
    print("begun", flush=True)
    sys.stdin.read()
"""


def begun(path):
    """A process that is in the middle of writing a file."""
    command = [sys.executable, "-c", WRITER, str(path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    return child


def put(path, content):
    with _files.written(path) as write:
        write(content)


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    killed, living = begun(path), begun(path)
    try:
        killed.kill()
        killed.wait()
        assert len(list(tmp_path.glob("a.*.partial"))) == 2
        put(other, b"not our business")
        assert len(list(tmp_path.glob("a.*.partial"))) == 2
        put(path, b"first")
        assert len(list(tmp_path.glob("a.*.partial"))) == 1
        assert path.read_bytes() == b"first"
        _files.remove_abandoned(tmp_path)
        living.communicate("")
        assert living.returncode == 0
        assert path.read_bytes() == b"half"
    finally:
        for child in (killed, living):
            child.kill()
            child.communicate()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_many_writers_of_one_file_never_mix(tmp_path):
    """Each writes its own letter: whoever is last, the file is of one of them, and whole."""
    path, contents = tmp_path / "a", [bytes([65 + i]) * 100_000 for i in range(4)]

    def write(content):
        for _ in range(20):
            put(path, content)
            assert path.read_bytes() in contents

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["a"]


def test_a_rename_is_on_the_disk_before_anyone_is_told(tmp_path, monkeypatch):
    done, real = [], (os.fsync, os.replace)

    def fsync(descriptor):
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        real[0](descriptor)

    def replace(source, target):
        done.append("rename")
        real[1](source, target)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("this system does not say what a descriptor is of")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    put(tmp_path / "a", b"x")
    _files.append(tmp_path / "lines", b"x\n")
    _files.append(tmp_path / "lines", b"y\n")
    assert done == ["file", "rename", "folder", "file", "folder", "file"]
    assert (tmp_path / "lines").read_bytes() == b"x\ny\n"
