"""A study's table is its files': means, errors over seeds and songs, paired differences."""

import json

import numpy as np
import pytest

from refusals import refuses
from studies import SEEDS, SONGS, drawn, write_cell
from varfilter.report.study import (
    difference,
    read_cells,
    study_lines,
    study_markdown,
    study_numbers,
)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    write_cell(tmp_path, "srnn-jsb-avf-best", drawn(rng, -0.1), stopped="time was up")
    write_cell(tmp_path, "srnn-jsb-avf-5-best", drawn(rng, -0.2))
    write_cell(tmp_path, "srnn-jsb-baseline-best", drawn(rng, 0.0))
    write_cell(tmp_path, "srnn-piano-baseline-paper", drawn(rng, 0.5)[:1])
    # A search, and a cell that was cut before it was scored, are no part of the table.
    (tmp_path / "search-jsb-avf-25").mkdir()
    search = {"name": "search-jsb-avf-25", "part": None, "members": []}
    (tmp_path / "search-jsb-avf-25" / "cell.json").write_text(json.dumps(search))
    write_cell(tmp_path, "srnn-jsb-residual-best", drawn(rng, 0.0))
    (tmp_path / "srnn-jsb-residual-best" / "seed-3" / "test.json").unlink()
    return tmp_path


def test_errors_over_seeds_and_songs_are_those_that_were_put_in(folder):
    cells = read_cells(folder)
    methods = [(c.data, c.protocol, c.method) for c in cells]
    assert methods == [
        ("piano", "paper", "baseline"),
        ("jsb", "best", "baseline"),
        ("jsb", "best", "avf"),
        ("jsb", "best", "avf-5"),
    ]
    baseline, avf = cells[1:3]
    # A standard deviation of 60 is right to 9%, of 400 to 4%: three times that.
    assert baseline.seed_error == pytest.approx(0.03 / SEEDS**0.5, rel=0.3)
    assert baseline.song_error == pytest.approx(0.7 / SONGS**0.5, rel=0.12)
    gap = difference(avf, baseline)
    assert gap.mean == pytest.approx(avf.mean - baseline.mean, abs=1e-12)
    assert gap.mean == pytest.approx(-0.1, abs=4 * gap.seed_error)
    assert gap.seed_error == pytest.approx(2**0.5 * 0.03 / SEEDS**0.5, rel=0.3)
    # The songs' own difficulty, 0.7, is gone: what is left is the noise of 60 seeds each.
    assert gap.song_error == pytest.approx((2 / SEEDS / SONGS) ** 0.5 * 0.02, rel=0.12)


def test_the_table_has_the_numbers_of_the_files_and_the_papers(folder):
    cells = read_cells(folder)
    rows = study_numbers(cells)
    assert [row["published"] for row in rows] == [8.21, 7.05, 7.10, 6.90]
    assert [row["difference"] is None for row in rows] == [True, True, False, False]
    # One seed has no error over seeds.
    assert rows[0]["seed_error"] is None
    files = [json.loads(path.read_text()) for path in folder.glob("srnn-jsb-avf-best/*/test.json")]
    want = np.mean([file["nats"] for file in files])
    assert rows[2]["nats"] == pytest.approx(want, abs=1e-12)
    lines = study_markdown(cells).splitlines()
    assert lines[4].split(" | ")[4] == f"{want:.3f}*"
    assert lines[5].split(" | ")[4] == f"{rows[3]['nats']:.3f}"
    assert "time was up" in lines[-1]
    shown = study_lines(cells)
    assert all(len(line) <= 80 for line in shown)
    assert f"{want:.3f} ({rows[2]['seed_error']:.3f})*" in shown[3]


def test_cells_of_other_songs_are_not_compared(folder):
    baseline = next(c for c in read_cells(folder) if c.data == "jsb" and c.method == "baseline")
    other = next(c for c in read_cells(folder) if c.data == "piano")
    half = type(other)(**(vars(other) | {"songs": other.songs[:-1], "nats": other.nats[:, :-1]}))
    refuses(lambda: difference(half, baseline), ValueError, "different songs")


def test_a_folder_without_scores_is_refused(tmp_path):
    refuses(lambda: read_cells(tmp_path), ValueError, "no cell of a study")
