"""Tables 1 and 2 and figures 3 and 4 from the files of a study, made up and kept."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from commands import refuse, succeed
from refusals import refuses
from studies import drawn, write_cell
from varfilter.report.gaps import learned_markdown, read_gaps
from varfilter.report.iteration_study import iteration_numbers, read_iterations
from varfilter.report.kept import read_examples
from varfilter.report.media_tables import media_markdown, media_numbers, read_media
from varfilter.report.study import parts_of, read_cells

KLS = {"baseline": 2.0, "avf": 0.01}


def fill_in(folder, name, *, kl=1.0, valid=(7.0, 6.0), by_iteration=None, released=None):
    """Add the curves of each seed of a made-up cell, and what else its scores have."""
    path = folder / name / "cell.json"
    record = json.loads(path.read_text())
    for member in record["members"]:
        member["epoch"] = 20.0
        lines = [
            {"epoch": 10.0 * (i + 1), "valid": {"nats": v + 0.1 * member["seed"]},
             "train": {"kl": kl * (i + 1) / 2, "free_energy": v - 0.5}}
            for i, v in enumerate(valid)
        ]  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in lines)
        place = folder / name / member["folder"]
        (place / "metrics.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        scores = json.loads((place / "test.json").read_text())
        if by_iteration is not None:
            scores["nats_by_iteration"] = list(by_iteration)
        if released is not None:
            scores["released"] = {"nats": released}
        (place / "test.json").write_text(json.dumps(scores))
    path.write_text(json.dumps(record))


@pytest.fixture
def speech(tmp_path):
    rng = np.random.default_rng(3)
    folder = tmp_path / "table-1"
    for method, effect in (("avf", 0.2), ("avf-2", 0.1), ("baseline", 0.0)):
        name = f"srnn-timit-sample-{method}-best"
        write_cell(folder, name, drawn(rng, effect)[:3, :5] + 1000.0)
        steps = None if method == "baseline" else (1020.0, 1010.0)
        fill_in(folder, name, kl=KLS.get(method, 1.0), by_iteration=steps, released=900.0)
    return folder


def test_names_of_cells_say_what_they_are():
    assert parts_of("srnn-jsb-avf-5-best") == ("srnn", "jsb", "avf-5", "best")
    assert parts_of("vrnn-timit-sample-avf-2-best") == ("vrnn", "timit-sample", "avf-2", "best")
    assert parts_of("svg-weizmann-routed-best") == ("svg", "weizmann", "routed", "best")
    assert parts_of("srnn-jsb-avf-fivo") == ("srnn", "jsb", "avf", "fivo")
    refuses(lambda: parts_of("srnn-birds-avf-best"), ValueError, "birds", "emodb")


def test_tables_of_speech_have_what_is_in_the_files(speech, tmp_path):
    rows = read_media(speech)
    numbers = media_numbers(rows)
    assert [row["method"] for row in numbers] == ["baseline", "avf", "avf-2"]
    baseline, avf, _ = (row.cell for row in rows)
    gap = numbers[1]["difference"]
    assert gap["mean"] == pytest.approx(np.mean(avf.nats - baseline.nats), abs=1e-9)
    # The KL is that of the best epoch, the second; the gain that of the iterations.
    assert [row["kl"] for row in numbers] == [2.0, 0.01, 1.0]
    assert [row["gain"] for row in numbers] == [None, 10.0, 10.0]
    assert [row["uses_latents"] for row in numbers] == [True, False, True]
    table = media_markdown(rows)
    assert f"| {avf.mean:,.1f} |" in table
    assert "not used (a KL below 0.1 nats): SRNN with AVF, K=1 on timit-sample." in table
    # Numbers of two units never share a table, and the paper's, of other data, are nowhere.
    ours, released = table.split("| data | model | method | seeds | test, as released")
    assert ("900" in ours, "900.0" in released) == (False, True)
    assert "1,02" not in table
    out = succeed("reproduce", "table-1", "--from-results", speech, "--out", tmp_path / "out").out
    assert "timit-sample  SRNN   baseline" in out
    assert (tmp_path / "out" / "table-1-study.md").read_text() == table


def test_of_the_points_of_a_search_the_chosen_one_is_read(tmp_path):
    rng = np.random.default_rng(4)
    write_cell(tmp_path, "srnn-jsb-avf-fivo", drawn(rng, 0.0)[:4, :6])
    path = tmp_path / "srnn-jsb-avf-fivo" / "cell.json"
    record = json.loads(path.read_text()) | {"scored": ["seed-1", "seed-3"]}
    path.write_text(json.dumps(record))
    for seed in (0, 2):
        (path.parent / f"seed-{seed}" / "test.json").unlink()
    (cell,) = read_cells(tmp_path)
    assert cell.nats.shape == (2, 6)
    assert len(cell.stopped) == 2
    nats = {"elbo": cell.nats + 0.2, "iwae-128": cell.nats, "fivo-128": cell.nats - 0.1}
    bounds = {"nats_by_song": {name: each.tolist() for name, each in nats.items()}}
    (path.parent / "bounds.json").write_text(json.dumps(bounds))
    results = Path(__file__).parents[2] / "results"
    table = learned_markdown(read_gaps(results / "table-3-bounds"), read_gaps(tmp_path))
    mean = cell.nats.mean()
    last = next(line for line in table.splitlines() if "| FIVO-16 |" in line)
    for value in (mean + 0.2, mean, mean - 0.1):
        assert f"| {value:.3f} (" in last
    assert table.count("| free energy |") == 2  # the heading, and AVF's other cell
    assert "Fraccaro" not in table


@pytest.fixture
def results(tmp_path):
    """Cells of K = 1 and 4, and one of fewer draws."""
    rng = np.random.default_rng(5)
    for folder, name, steps in (
        ("table-3", "srnn-jsb-avf-best", (8.0, 6.0)),
        ("figure-4", "srnn-jsb-avf-4-best", (8.0, 6.0, 5.0, 4.5, 4.0)),
        ("figure-4", "srnn-jsb-avf-s8-best", (8.0, 7.0)),
    ):
        write_cell(tmp_path / folder, name, drawn(rng, 0.0)[:2, :5])
        fill_in(tmp_path / folder, name, by_iteration=steps)
    write_cell(tmp_path / "table-3", "srnn-jsb-baseline-best", drawn(rng, 0.0)[:2, :5])
    return tmp_path


def test_figure_4_is_what_the_files_say(results, tmp_path):
    cells = read_iterations(results)
    assert [each.label for each in cells] == ["K = 1", "K = 1, draws = 8", "K = 4"]
    numbers = iteration_numbers(cells)
    assert numbers[2]["improvement"] == [0.0, 25.0, 37.5, 43.75, 50.0]
    np.testing.assert_allclose(numbers[0]["valid"], [7.05, 6.05])
    np.testing.assert_allclose(numbers[0]["train"], [6.5, 5.5])
    assert numbers[0]["best_valid"] == pytest.approx(6.05)
    out = tmp_path / "out"
    succeed("reproduce", "figure-4", "--from-results", results, "--out", out)
    assert {path.name for path in out.iterdir()} == {
        "figure-4-study.md", "figure-4-study.json", "figure-4a.png", "figure-4b.png"
    }  # fmt: skip
    assert "| 25.00, 37.50, 43.75, 50.00 |" in (out / "figure-4-study.md").read_text()
    assert "no cell of AVF on JSB" in refuse(
        "reproduce", "figure-4", "--from-results", tmp_path / "table-3", "--out", out
    )


def test_figure_3_draws_sounds_and_films(tmp_path):
    rng = np.random.default_rng(6)
    wave = rng.integers(-3000, 3000, (4, 200)).astype(np.int16)
    film = rng.integers(0, 256, (6, 1, 8, 8)).astype(np.uint8)
    for table, name, data in (
        ("table-1", "srnn-emodb-avf-best", wave), ("table-2", "svg-weizmann-avf-best", film),
    ):  # fmt: skip
        (tmp_path / table / name).mkdir(parents=True)
        shifted = data - data.dtype.type(1)
        np.savez(
            tmp_path / table / name / "example.npz", data=data, prediction=np.zeros_like(data),
            reconstruction=np.where(shifted < data, shifted, data), name="one", rate=16000,
        )  # fmt: skip
    assert [each.cell for each in read_examples(tmp_path)] == [
        "srnn-emodb-avf-best", "svg-weizmann-avf-best"
    ]  # fmt: skip
    out = tmp_path / "out"
    succeed("reproduce", "figure-3", "--from-results", tmp_path, "--out", out)
    numbers = json.loads((out / "figure-3-study.json").read_text())
    assert numbers[0]["prediction"] == pytest.approx(np.sqrt(np.mean(wave.astype(float) ** 2)))
    assert numbers[0]["reconstruction"] == pytest.approx(1.0)
    for name in ("srnn-emodb-avf-best", "svg-weizmann-avf-best"):
        assert (out / f"figure-3-{name}.png").stat().st_size > 1000
    refuses(lambda: read_examples(out), ValueError, "example.npz")
