"""Files of every format that is read, damaged at random, and what the command says of them.

    python tests/mutants.py COUNT FIRST FORMAT ...
    python tests/mutants.py check PATH ...

runs `varfilter data check` on COUNT damaged files of each format, from the FIRST on, or on the
paths, in this process, which may have 3 GiB of memory. A line of JSON for each format, or for each
path, says how they ended. What is read is named on stderr before it is: so the file that ends the
process is known.
"""

import contextlib
import gzip
import io
import json
import pickle
import resource
import shutil
import sys
import tempfile
import time
import traceback
import wave
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

MEMORY = 3 << 30
# What may be asked of a file at most; all of them take far less.
MOST_SECONDS = 60.0
SPLITS = ("train", "valid", "test")


def rng_of(*numbers):
    return np.random.default_rng(numbers)


# Good files, in folders of their own: (what the command is given, the file that is damaged).


def table(folder, name, write):
    path = folder / name
    write(path, rng_of(1).normal(size=(60, 3)).round(4))
    return path, path


def csv_text(rows):
    lines = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,{a},{b},{c:.0f},ok {i}" for i, (a, b, c)
             in enumerate(rows)]  # fmt: skip
    return "\n".join(['time,warm,"cold ""b""",faults,remark', *lines]) + "\n"


def write_parquet(path, rows):
    import polars

    columns = {"warm": rows[:, 0], "cold": rows[:, 1], "faults": rows[:, 2] > 0}
    polars.DataFrame({**columns, "remark": ["ok", "bad"] * 30}).write_parquet(path)


def write_pandas(path, rows):
    import pandas

    frame = pandas.DataFrame(rows, columns=["warm", "cold", "flow"])
    frame["when"] = pandas.date_range("2024-01-01", periods=len(frame), freq="h")
    frame["remark"] = ["ok", "bad"] * 30
    frame.to_parquet(path, compression="gzip")


def songs():
    notes = rng_of(2).integers(40, 80, (3, 20, 3))
    return {
        split: [[tuple(map(int, step)) for step in song]]
        for split, song in zip(SPLITS, notes, strict=True)
    }


def rolls():
    return {s: (rng_of(3, i).random((20, 88)) < 0.1).astype(np.uint8) for i, s in enumerate(SPLITS)}


def music(folder, name, write):
    path = folder / name
    write(path)
    return path, path


def write_pickle(protocol):
    return lambda path: path.write_bytes(pickle.dumps(songs(), protocol))


def write_numbers(path):
    found = {s: [[[np.int64(n) for n in step] for step in song] for song in part]
             for s, part in songs().items()}  # fmt: skip
    path.write_bytes(pickle.dumps(found, 2))


def write_mat(packed):
    def write(path):
        from scipy.io import savemat

        cells = {}
        for split, roll in rolls().items():
            cells[f"{split}data"] = np.empty((1, 2), object)
            cells[f"{split}data"][0, 0], cells[f"{split}data"][0, 1] = roll, roll[:5]
        savemat(path, cells, do_compression=packed)

    return write


def write_rolls(path):
    parts = {f"{s}_rolls": np.packbits(roll, axis=1) for s, roll in rolls().items()}
    np.savez_compressed(path, **parts, **{f"{s}_lengths": np.array([12, 8]) for s in SPLITS})


def many(folder, ending, write):
    """Four recordings; the first is damaged."""
    for number in range(4):
        write(folder / f"take{number}{ending}", number)
    return folder, folder / f"take0{ending}"


def write_midi(path, number):
    import mido

    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=400_000)])
    for note in rng_of(4, number).integers(40, 90, 30):
        track.append(mido.Message("note_on", note=int(note), time=0))
        track.append(mido.Message("note_off", note=int(note), time=240))
    mido.MidiFile(tracks=[track]).save(str(path))


def samples(number):
    return rng_of(5, number).integers(-3000, 3000, 1200).astype(np.int16)


def write_wav(path, number):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples(number).tobytes())


def write_flac(path, number):
    import soundfile

    soundfile.write(str(path), samples(number), 16000, subtype="PCM_16")


def write_nist(path, number):
    from sounds import write_sphere

    write_sphere(path, samples(number))


def images(number):
    return rng_of(6, number).integers(0, 256, (6, 16, 20), np.uint8)


def write_video(codec, pixels):
    def write(path, number):
        from videos import write_video as write_frames

        frames = images(number)
        write_frames(path, frames if pixels == "gray" else np.stack([frames] * 3, -1),
                     codec=codec, pixels=pixels)  # fmt: skip

    return write


def write_gif(path, number):
    from PIL import Image

    first, *rest = (Image.fromarray(image) for image in images(number))
    first.save(path, save_all=True, append_images=rest, duration=50)


def frames(ending):
    def write(folder):
        from PIL import Image

        for number in range(4):
            (folder / f"clip{number}").mkdir()
            for i, image in enumerate(images(number)):
                Image.fromarray(image).save(folder / f"clip{number}" / f"{i}{ending}")
        return folder, folder / "clip0" / f"2{ending}"

    return write


FORMATS = {
    "csv": lambda f: table(f, "t.csv", lambda p, rows: p.write_text(csv_text(rows))),
    "csv.gz": lambda f: table(
        f, "t.csv.gz", lambda p, rows: p.write_bytes(gzip.compress(csv_text(rows).encode()))
    ),
    "csv in a whole gz": lambda f: table(
        f, "u.csv.gz", lambda p, rows: p.write_text(csv_text(rows))
    ),
    "parquet": lambda f: table(f, "t.parquet", write_parquet),
    "parquet of pandas": lambda f: table(f, "p.parquet", write_pandas),
    "npy": lambda f: table(f, "t.npy", np.save),
    "npz": lambda f: table(
        f, "t.npz", lambda p, rows: np.savez_compressed(p, warm=rows[:, 0], cold=rows[:, 1:])
    ),
    "pickle 0": lambda f: music(f, "s.pickle", write_pickle(0)),
    "pickle 2": lambda f: music(f, "s.pickle", write_pickle(2)),
    "pickle 5": lambda f: music(f, "s.pickle", write_pickle(5)),
    "pickle of numpy": lambda f: music(f, "s.pickle", write_numbers),
    "mat": lambda f: music(f, "s.mat", write_mat(False)),
    "mat, packed": lambda f: music(f, "s.mat", write_mat(True)),
    "rolls": lambda f: music(f, "s.npz", write_rolls),
    "midi": lambda f: many(f, ".mid", write_midi),
    "wav": lambda f: many(f, ".wav", write_wav),
    "flac": lambda f: many(f, ".flac", write_flac),
    "sphere": lambda f: many(f, ".sph", write_nist),
    "avi": lambda f: many(f, ".avi", write_video("mpeg4", "yuv420p")),
    "mp4": lambda f: many(f, ".mp4", write_video("mpeg4", "yuv420p")),
    "mkv": lambda f: many(f, ".mkv", write_video("ffv1", "gray")),
    "gif": lambda f: many(f, ".gif", write_gif),
    "png": frames(".png"),
    "jpg": frames(".jpg"),
}


# Of a file that is packed, what is in it may be damaged instead.
PACKED = {"csv in a whole gz": gzip.compress}


# Damage


def damaged(content, number):
    """The content with one to four kinds of damage, drawn from `number`."""
    rng = rng_of(7, number)
    body = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        kind, at = int(rng.integers(8)), int(rng.integers(max(len(body), 1)))
        if number % 2 and kind < 5:  # every other one near the beginning, where headers are
            at = int(rng.integers(min(len(body), 256) or 1))
        if kind == 0:
            for place in rng.integers(0, max(len(body), 1), int(rng.integers(1, 9))):
                body[place : place + 1] = bytes([rng.integers(256)])
        elif kind == 1:
            body[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            extreme = [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\0"]
            body[at : at + 4] = extreme[int(rng.integers(4))]
        elif kind == 3:
            body[at : at + 8] = rng.bytes(8)
        elif kind == 4:
            body[at:at] = rng.bytes(int(rng.integers(1, 40)))
        elif kind == 5:
            del body[at : at + int(rng.integers(1, 80))]
        elif kind == 6:
            body += body[at : at + 500]
        else:
            del body[at:]
        if not body:
            break
    return bytes(body)


def checked(place):
    """(exit code, what stderr got) of `varfilter data check`; the traceback where it raises."""
    from varfilter.cli.data import Check

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            # Without the parser of options, which takes longer than to read the file.
            code = Check(source=str(place), json=True)()
        except BaseException:  # whatever a user would see as a traceback
            code = traceback.format_exc()
    return code, err.getvalue()


def run(kind, count, first):
    """How the commands on `count` damaged files of a format ended, and the failures among them."""
    ends, failures = Counter(), []
    with tempfile.TemporaryDirectory() as made:
        good = Path(made) / "good"
        good.mkdir()
        given, file = FORMATS[kind](good)
        content, pack = file.read_bytes(), PACKED.get(kind, bytes)
        file.write_bytes(pack(content))
        code, said = checked(given)
        assert code == 0, (kind, code, said)
        for number in range(first, first + count):
            bad = Path(made) / f"bad{number}"
            shutil.copytree(good, bad)
            (bad / file.relative_to(good)).write_bytes(pack(damaged(content, number)))
            print(f"{kind} {number}", file=sys.stderr, flush=True)
            begin = time.perf_counter()
            code, said = checked(bad / given.relative_to(good))
            seconds = time.perf_counter() - begin
            ends[str(code) if code in (0, 1, 2) else "traceback"] += 1
            is_bad = code not in (0, 1, 2) or (code == 2 and not said.strip())
            if is_bad or "Traceback" in said or "\x1b" in said or seconds > MOST_SECONDS:
                failures.append([number, str(code), said[-500:], seconds])
            shutil.rmtree(bad)
    return {"format": kind, "ends": dict(ends), "failures": failures}


def limited():
    """Take 3 GiB of memory for all that this process has; ask for more, and get an error."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def main(words):
    limited()
    if words[0] == "check":  # of files that lie there: a line with the end of each
        for place in words[1:]:
            print(place, file=sys.stderr, flush=True)
            print(json.dumps(checked(place)), flush=True)
        return
    count, first, *kinds = words
    for kind in kinds or FORMATS:
        print(json.dumps(run(kind, int(count), int(first))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
