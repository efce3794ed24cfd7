"""Archives are unpacked whole or not at all, and nothing gets out of its folder."""

import os
import tarfile

import pytest

from hostile import HOSTILE, member, tarred, zipped
from servers import listing
from varfilter.data.sets.archives import unpack

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.mark.parametrize("name", HOSTILE)
def test_unpacking_is_all_or_nothing(tmp_path, name):
    archive = tmp_path / "toy.zip"
    archive.write_bytes(HOSTILE[name][0])
    with pytest.raises(ValueError, match=r"toy\.zip"):
        unpack(archive, tmp_path / "made")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.zip"]


def test_good_archives_are_unpacked_and_members_are_chosen(tmp_path):
    infos = (
        (member("a/b.txt"), b"b"),
        (member("a/c.txt"), b"c"),
        (member("d", tarfile.DIRTYPE), b""),
    )
    bodies = {"a.zip": zipped([("a/b.txt", b"b"), ("a/c.txt", b"c"), ("d/", b"")])}
    for mode in ("gz", "bz2", "xz", ""):
        bodies[f"a.tar.{mode}"] = tarred(*infos, mode=f"w:{mode}")
    for name, body in bodies.items():
        (tmp_path / name).write_bytes(body)
        unpack(tmp_path / name, tmp_path / f"{name}-all")
        assert listing(tmp_path / f"{name}-all") == ["a/b.txt", "a/c.txt"]
        chosen = unpack(
            tmp_path / name, tmp_path / f"{name}-one", lambda m: "x" if m == "a/c.txt" else None
        )
        assert [path.read_bytes() for path in chosen] == [b"c"]
        assert listing(tmp_path / f"{name}-one") == ["x"]
        assert not os.access(chosen[0], os.X_OK)
