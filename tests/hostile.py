"""Archives for the tests: good ones, and such as strangers may send."""

import io
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from servers import BODY

# The content of a toy set: one array in one archive.
ARRAY = np.arange(24.0, dtype=np.float32).reshape(12, 2)


def toy_bytes(array=ARRAY):
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def zipped(members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in members:
            file.writestr(name, body)
    return made.getvalue()


def tarred(*infos, mode="w:gz"):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as file:
        for info, body in infos:
            info.size = len(body)
            file.addfile(info, io.BytesIO(body))
    return made.getvalue()


def member(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


OUTSIDE = Path(tempfile.gettempdir()) / "varfilter-outside.txt"
BOMB = b"\0" * (40 << 20)
LINK = zipfile.ZipInfo("link")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16
GOOD = ("toy.npy", toy_bytes())
HOSTILE = {
    "parent": (zipped([GOOD, ("../outside.txt", b"x")]), "'../outside.txt'", "leads out"),
    "deep parent": (zipped([GOOD, ("a/../../x", b"x")]), "leads out"),
    "absolute": (zipped([GOOD, (str(OUTSIDE), b"x")]), "leads out"),
    "windows parent": (zipped([GOOD, ("..\\outside.txt", b"x")]), "leads out"),
    "windows drive": (zipped([GOOD, ("C:outside.txt", b"x")]), "leads out"),
    "symlink": (zipped([GOOD, (LINK, "../../..")]), "'link'", "link or a device"),
    "twice": (zipped([GOOD, ("sub", b"x"), ("sub/y", b"x")]), "not a whole"),
    "bomb": (zipped([GOOD, ("zeros", BOMB)]), "more than 16777216 bytes", "Nothing was unpacked"),
    "truncated": (zipped([GOOD, ("noise", BODY)])[:300_000], "not a whole zip or tar"),
    "damaged": (zipped([GOOD, ("noise", BODY)]).replace(BODY[:50], BODY[50:100]), "not a whole"),
    "no archive": (b"<html>404 Not Found</html>", "not a whole zip or tar"),
    "empty": (b"", "not a whole zip or tar"),
    "tar parent": (tarred((member("../x"), b"x")), "leads out"),
    "tar absolute": (tarred((member(str(OUTSIDE)), b"x")), "leads out"),
    "tar symlink": (tarred((member("l", tarfile.SYMTYPE, "/etc"), b"")), "link or a device"),
    "tar hard link": (tarred((member("l", tarfile.LNKTYPE, "../x"), b"")), "link or a device"),
    "tar device": (tarred((member("d", tarfile.CHRTYPE), b"")), "link or a device"),
    "tar pipe": (tarred((member("d", tarfile.FIFOTYPE), b"")), "link or a device"),
    "tar bomb": (tarred((member("zeros"), BOMB)), "more than 16777216 bytes"),
    "tar truncated": (tarred((member("noise"), BODY))[:300_000], "not a whole zip or tar"),
}
