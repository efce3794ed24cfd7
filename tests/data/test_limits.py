"""What files announce is held against a limit that follows the memory and can be set."""

import gzip
import subprocess
import sys

import numpy as np
import polars
import pytest

from plants import everything
from refusals import refuses
from varfilter.data.limits import most_bytes, require_expansion, require_size
from varfilter.data.tables.read import read_table

pytestmark = pytest.mark.usefixtures("as_users_run_it")

PROGRAM = """
import resource
from varfilter.data.limits import most_bytes
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
print(most_bytes())
"""


def test_the_limit_follows_the_memory_and_can_be_set(monkeypatch):
    monkeypatch.delenv("VARFILTER_MAX_GIB", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    # Three quarters of what is left of 3 GiB beside the interpreter and jax.
    assert 0.2 * 2**30 < int(done.stdout) < 0.75 * 3 * 2**30
    monkeypatch.setenv("VARFILTER_MAX_GIB", "0.5")
    assert most_bytes() == 2**29
    require_size("it", 2**29)
    refuses(
        lambda: require_size("`path` 'a' announces much", 2**29 + 1),
        ValueError, "`path` 'a' announces much", "512.0 MiB", "VARFILTER_MAX_GIB=1.",
    )  # fmt: skip
    for wrong in ("0", "-1", "x", "nan", "inf", ""):
        monkeypatch.setenv("VARFILTER_MAX_GIB", wrong)
        refuses(most_bytes, ValueError, "`$VARFILTER_MAX_GIB`", repr(wrong))


def test_what_unpacks_to_far_more_than_usual_is_no_data_unless_said_so(monkeypatch):
    monkeypatch.delenv("VARFILTER_MAX_GIB", raising=False)
    require_expansion("it", 60 << 20, 10)  # small in any case
    require_expansion("it", 190 << 20, 1 << 20)
    refuses(
        lambda: require_expansion("It unpacks to much", 210 << 20, 1 << 20),
        ValueError, "210 times", "VARFILTER_MAX_GIB",
    )  # fmt: skip
    monkeypatch.setenv("VARFILTER_MAX_GIB", "1")
    require_expansion("it", 210 << 20, 1 << 20)


def files_of(folder, rows):
    """The same table in every format whose content may be packed, and in those that are plain."""
    text = "\n".join(["a,b", *(f"{a},{b}" for a, b in rows)]) + "\n"
    (folder / "t.csv").write_text(text)
    (folder / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    polars.DataFrame({"a": rows[:, 0], "b": rows[:, 1]}).write_parquet(folder / "t.parquet")
    polars.DataFrame({"a": rows[:, 0], "b": rows[:, 1]}).to_pandas().to_parquet(
        folder / "p.parquet", row_group_size=70, compression="brotli"
    )
    np.save(folder / "t.npy", rows)
    np.savez_compressed(folder / "t.npz", a=rows[:, 0], b=rows[:, 1])
    return sorted(folder.iterdir())


def test_the_limit_holds_for_every_format_and_lets_good_files_pass(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 2)).round(3)
    for path in files_of(tmp_path, rows):
        monkeypatch.setenv("VARFILTER_MAX_GIB", "0.000001")  # a thousand bytes
        refuses(lambda path=path: read_table(path), ValueError, path.name, "VARFILTER_MAX_GIB=1.")
        monkeypatch.setenv("VARFILTER_MAX_GIB", "0.001")
        np.testing.assert_array_equal(everything(read_table(path)), rows.astype(np.float32))


def test_a_column_of_constants_is_no_bomb(tmp_path):
    """Parquet packs a million equal values in some bytes; they are as good as others."""
    frame = polars.DataFrame({"a": np.zeros(1_000_000), "b": np.arange(1_000_000) % 50 / 7})
    frame.write_parquet(tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 100_000
    assert len(everything(read_table(tmp_path / "t.parquet"))) == 1_000_000
