"""Disks that are full, and disks on which power or a process may fail at any byte."""

import contextlib
import os
import shutil
import signal
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from varfilter import _files


@contextlib.contextmanager
def full_disk():
    """Where a new file is to be, all that is written fails."""

    def new_file(target):
        partial = target.with_name(target.name + ".1-00000000.partial")
        partial.symlink_to("/dev/full")
        return partial, os.open(partial, os.O_RDWR)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_files, "_new_file", new_file)
        yield


class Disk:
    """What `varfilter._files` does below a folder, and what of it the disk has for certain.

    Bytes are certain when their file was synced, names when their folder was. A subclass says
    within each write where it is to be stopped (`place`), and what happens at the moments when
    the process may die (`moment`).
    """

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.lock = threading.RLock()
        self.unsynced = {}  # how long a file is for certain, by its inode
        self.renames = []  # (the inode of the folder, from, to, what was there)

    def place(self, size):
        return None

    def moment(self):
        pass

    @contextlib.contextmanager
    def watched(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_files, "open", self._open, raising=False)
            patch.setattr(os, "fsync", self._fsync)
            patch.setattr(os, "replace", self._replace)
            yield self

    def cut_power(self, folder, random):
        """Take from `folder`, a copy of ours or ours itself, what the disk had not for certain."""
        for path in list(self.folder.rglob("*")):
            inode = path.stat().st_ino
            if path.is_file() and inode in self.unsynced:
                length = random.integers(self.unsynced[inode], path.stat().st_size + 1)
                os.truncate(Path(folder) / path.relative_to(self.folder), int(length))
        # The journal has renames in their order: those behind some point are lost.
        for _, source, target, before in self.renames[random.integers(len(self.renames) + 1) :][
            ::-1
        ]:
            source, target = (Path(folder) / p.relative_to(self.folder) for p in (source, target))
            shutil.move(target, source)
            if before is not None:
                target.write_bytes(before)

    def _open(self, path, mode="r", *rest, **options):
        file = open(path, mode, *rest, **options)  # noqa: SIM115
        if not {"w", "a"} & set(mode) or self.folder not in Path(path).resolve().parents:
            return file
        with self.lock:
            self.unsynced.setdefault(os.fstat(file.fileno()).st_ino, os.path.getsize(path))
        return _Watched(file, self)

    def _fsync(self, descriptor, *, _real=os.fsync):
        with self.lock:
            _real(descriptor)
            found = os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                self.renames = [each for each in self.renames if each[0] != found.st_ino]
            self.unsynced.pop(found.st_ino, None)
            self.moment()

    def _replace(self, source, target, *, _real=os.replace):
        source, target = Path(source).resolve(), Path(target).resolve()
        if self.folder not in target.parents:
            return _real(source, target)
        with self.lock:
            self.moment()
            before = target.read_bytes() if target.exists() else None
            self.renames.append((target.parent.stat().st_ino, source, target, before))
            _real(source, target)
            self.moment()


class _Watched:
    """A file whose writes may be stopped in their middle."""

    def __init__(self, file, disk):
        self.file, self.disk = file, disk

    def write(self, content):
        with self.disk.lock:
            place = self.disk.place(len(content))
            if place is None:
                return self.file.write(content)
            self.file.write(content[:place])
            self.file.flush()
            self.disk.moment()
            self.file.write(content[place:])
        return len(content)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


class CrashingDisk(Disk):
    """The process is killed in the middle of the byte, or at the moment, of a given number.

    With `power` also the power fails: what was not synced is lost.
    """

    def __init__(self, folder, *, after_bytes=None, at_moment=None, power=False, seed=0):
        super().__init__(folder)
        self.left, self.at_moment, self.power = after_bytes, at_moment, power
        self.random = np.random.default_rng(seed)
        self.num_moments = 0

    def place(self, size):
        if self.left is None:
            return None
        self.left -= size
        return self.left + size if self.left < 0 else None

    def moment(self):
        self.num_moments += 1
        if (self.left is not None and self.left < 0) or self.num_moments == self.at_moment:
            if self.power:
                self.cut_power(self.folder, self.random)
            os.kill(os.getpid(), signal.SIGKILL)


class ImagedDisk(Disk):
    """Keeps images of the folder as crashes at some moments would leave it."""

    def __init__(self, folder, images, share, seed=0):
        super().__init__(folder)
        self.images, self.share = Path(images), share
        self.random = np.random.default_rng(seed)
        self.taken = []  # (image, whether the power failed)

    def place(self, size):
        return int(self.random.integers(size + 1))

    def moment(self):
        with self.lock:
            if self.random.random() >= self.share:
                return
            image = self.images / f"{len(self.taken):04}"
            shutil.copytree(self.folder, image)
            has_failed = bool(self.random.integers(2))
            if has_failed:
                self.cut_power(image, self.random)
            self.taken.append(image)
            self.note(image)

    def note(self, image):
        """What is to be known of an image; for the test to say."""
