"""Files that strangers may send: archives that lead astray, and more than memory holds."""

import gzip
import io
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
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


# Files that announce more than memory holds: each is written to a folder, and what a command is
# given is returned; beside it, words of the refusal.


def png(width, height):
    def chunk(name, body):
        check = zlib.crc32(name + body).to_bytes(4, "big")
        return len(body).to_bytes(4, "big") + name + body + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(4 << 20), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def clips(body, ending):
    """Four folders of a frame each."""

    def write(folder):
        for number in range(4):
            (folder / f"clip{number}").mkdir(parents=True)
            (folder / f"clip{number}" / f"0{ending}").write_bytes(body + bytes(number))
        return folder

    return write


def takes(body, ending):
    """Four recordings in a folder."""

    def write(folder):
        for number in range(4):
            (folder / f"take{number}{ending}").write_bytes(body + bytes(number))
        return folder

    return write


def alone(body, name):
    def write(folder):
        (folder / name).write_bytes(body() if callable(body) else body)
        return folder / name

    return write


def zeros(num_bytes, line=b"0,0\n"):
    """So many bytes of a table, packed; a thousand times smaller."""
    made = io.BytesIO()
    with gzip.open(made, "wb", 9) as file:
        file.write(b"a,b\n")
        part = line * ((1 << 20) // len(line))
        for _ in range(num_bytes >> 20):
            file.write(part)
    return made.getvalue()


def npy_header(shape, kind="<f8"):
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        made, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    return made.getvalue() + bytes(64)


def mat_element(kind, body):
    return struct.pack("<II", kind, len(body)) + body + bytes(-len(body) % 8)


def mat_cells(shape, body=b"", name=b"traindata"):
    flags = mat_element(6, struct.pack("<II", 1, 0))
    sizes = mat_element(5, struct.pack(f"<{len(shape)}i", *shape))
    return mat_element(14, flags + sizes + mat_element(1, name) + body)


def mat_file(body):
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\x01IM" + body


def packed(body):
    return struct.pack("<II", 15, len(body)) + body


def nested_cells(depth):
    # Built from the inside, and in one buffer: each level is a copy of all that is in it.
    body = mat_cells((0, 0), name=b"")
    for _ in range(depth):
        body = mat_cells((1, 1), body, b"")
    return mat_cells((1, 1), body)


NOTE = b"\x90\x3c\x40\x00\xff\x2f\x00"  # and the end of the track


def midi(track, ticks_per_beat=1):
    header = b"MThd" + struct.pack(">IHHH", 6, 0, 1, ticks_per_beat)
    return header + b"MTrk" + struct.pack(">I", len(track)) + track


def flac(num_samples, rate=16000, channels=1, bits=16):
    packed = (rate << 44) | ((channels - 1) << 41) | ((bits - 1) << 36) | num_samples
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + packed.to_bytes(8, "big") + bytes(16)
    return b"fLaC" + bytes([0x80]) + len(info).to_bytes(3, "big") + info + bytes(100)


def wav(rate, num_samples):
    data = bytes(2 * num_samples)
    form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate & 0xFFFFFFFF, 2, 16)
    parts = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    parts += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(parts)) + parts


def sphere(**fields):
    known = {"channel_count": 1, "sample_count": 400, "sample_rate": 16000} | fields
    lines = ["NIST_1A", "   1024", *(f"{name} -i {value}" for name, value in known.items())]
    lines += ["sample_n_bytes -i 2", "sample_byte_format -s2 01", "end_head", ""]
    return "\n".join(lines).encode().ljust(1024) + bytes(800)


def gif(width, height):
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00"
    return b"GIF89a" + screen + image + b"\x3b"


def laughs(num_lists):
    """Steps that are the same list, songs that are the same steps: squares of what is written."""
    step = b"](" + b"K\x3c" * num_lists + b"eq\x01"
    song = b"](" + b"h\x01" * num_lists + b"eq\x02"
    return (
        b"\x80\x02}(U\x05train]("
        + step
        + b"0"
        + song
        + b"h\x02" * num_lists
        + b"eU\x05valid]U\x04test]u."
    )


def nested_key(depth):
    return b"\x80\x02}(" + b")" + b"\x85" * depth + b"K\x01u."


def parquet_of_many(num_rows):
    """A column of nulls in which each row group is some bytes, however many rows it has."""
    import polars

    made = io.BytesIO()
    polars.select(a=polars.repeat(0, num_rows, dtype=polars.Int8)).write_parquet(
        made, compression="zstd", row_group_size=num_rows
    )
    return made.getvalue()


BOMBS = {
    "png": (clips(png(60000, 60000), ".png"), "3600000000 pixels"),
    "png above Pillow's warning": (clips(png(10000, 9500), ".png"), "10000 x 9500"),
    "gif": (takes(gif(65535, 65535), ".gif"), "take"),
    "csv.gz": (alone(lambda: zeros(80 << 20), "t.csv.gz"), "unpacks to", "VARFILTER_MAX_GIB"),
    "wide csv": (
        alone(lambda: b",".join(b"c%d" % i for i in range(100_000)) + b"\n1" * 100_000, "w.csv"),
        "100000 columns in 100000 lines", "VARFILTER_MAX_GIB",
    ),
    "csv of one line": (
        alone(lambda: b",".join(b"c%d" % i for i in range(1_000_000)) + b"\n1,2\n", "l.csv"),
        "1000000 columns",
    ),
    "parquet": (alone(lambda: parquet_of_many(60_000_000), "t.parquet"), "60000001 values"),
    "npy": (alone(npy_header((10**9, 100)), "t.npy"), "announces an array"),
    "npy of nothing": (alone(npy_header((10**15,), "|S0"), "t.npy"), "announces an array"),
    "npz": (
        alone(
            lambda: zipped([("a.npy", npy_header((80 << 20,), "|i1") + bytes(80 << 20))]), "t.npz"
        ),
        "unpacks to", "VARFILTER_MAX_GIB",
    ),
    "pickle that remembers": (
        alone(b"\x80\x02]r\xff\xff\xff\x7f.", "s.pickle"), "more objects than it has bytes",
    ),
    "pickle that remembers in text": (
        alone(b"(lp999999999\n.", "s.pickle"), "more objects than it has bytes",
    ),
    "pickle of repeats": (alone(laughs(130_000), "s.pickle"), "16900130000 steps"),
    "pickle of a long text": (
        alone(b"\x80\x04\x8e" + b"\xff" * 7 + b"\x0f.", "s.pickle"), "announces",
    ),
    "pickle of deep keys": (alone(nested_key(1_000_000), "s.pickle"), "key of a dictionary"),
    "pickle of lists": (alone(b"\x80\x02(" + b"]" * 800_000 + b"l.", "s.pickle"), "is missing"),
    "mat of cells": (alone(mat_file(mat_cells((2**15, 2**15))), "s.mat"), "1073741824 cells"),
    "mat of deep cells": (alone(lambda: mat_file(nested_cells(1000)), "s.mat"), "deep"),
    "mat that unpacks": (
        alone(lambda: mat_file(packed(zlib.compress(bytes(80 << 20), 9))), "s.mat"),
        "unpacks to", "VARFILTER_MAX_GIB",
    ),
    "midi": (takes(midi(b"\xff\xff\xff\x7f" + NOTE), ".mid"), "268435455 steps long"),
    "midi without end": (takes(midi(b"\xff" * 300_000 + b"\x7f" + NOTE), ".mid"), "without an end"),
    "midi of a large number": (
        takes(midi(b"\x81" * 40 + b"\x7f" + NOTE), ".mid"), "more than four bytes",
    ),
    "flac": (takes(flac(2**36 - 1), ".flac"), "68719476735 samples"),
    "sphere": (takes(sphere(sample_rate=10**12), ".sph"), "nine digits"),
}  # fmt: skip
# Sound that is refused where it is to have another rate than its own.
AT_OTHER_RATES = {
    "slow": takes(wav(1, 300_000), ".wav"),
    "quick": takes(wav(2**31 - 1, 300), ".wav"),
}
