"""The numbers of the documents are those of the files in `results/`."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from commands import refuse, succeed
from studies import drawn, write_cell
from varfilter.report.kept import blocks_of
from varfilter.report.study import read_cells, study_lines, study_markdown, study_numbers

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def scores_of(name):
    """The scores of a run's test part."""
    return json.loads((RESULTS / name / "test.json").read_text(encoding="utf-8"))


def nats(name):
    return f"{scores_of(name)['nats']:.2f}"


def with_error(name):
    return f"{nats(name)} ({scores_of(name)['standard_error']:.2f})"


def commands():
    """The folder of each command that makes a run, as the README of the results has them."""
    rows = re.findall(
        r"^\| `([\w-]+)` \| `(.*?)`", (RESULTS / "README.md").read_text(encoding="utf-8"), re.M
    )
    return {command: folder for folder, command in rows}


def test_the_table_of_single_runs_has_the_numbers_of_their_files():
    pattern = r"^\| .*\(`(varfilter train .*?)`\) \| " + r"([\d.]+) \| " * 4 + r"([\d.]+) \|"
    rows = re.findall(pattern, PAGE, re.M)
    assert len(rows) == 2
    for command, *numbers in rows:
        scores = scores_of(commands()[command])
        ours = [scores[name] for name in ("nats", "standard_error", "nats_as_published")]
        assert numbers[:3] == [f"{number:.2f}" for number in ours]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("srnn-jsb-avf-seed-1", "another seed of AVF has {with_error}"),
        ("srnn-nottingham-baseline", "the baseline has {with_error} and AVF"),
        ("srnn-nottingham-avf", "and AVF {with_error}; the paper's"),
        ("srnn-jsb-avf-annealed", "one draw of z it had {nats}."),
        ("srnn-jsb-avf-one-draw", "the test part has {nats}."),
    ],
)
def test_a_sentence_has_the_number_of_its_file(name, sentence):
    assert sentence.format(with_error=with_error(name), nats=nats(name)) in TEXT


def test_runs_are_on_record_with_what_made_them():
    for folder in RESULTS.glob("**/run.json"):
        record = json.loads(folder.read_text(encoding="utf-8"))
        assert record["data"]["sha256"]
        assert record["device"]
        lines = gzip.decompress((folder.parent / "metrics.jsonl.gz").read_bytes()).splitlines()
        best = min(lines, key=lambda line: json.loads(line)["valid"]["nats"])
        path = folder.parent / "test.json"
        # The first runs that were kept have no step in their scores.
        step = json.loads(path.read_text()).get("step") if path.exists() else None
        assert step in (None, json.loads(best)["step"])


def test_tables_of_the_page_are_those_of_the_files():
    """Each table that the results have is on the page, and none that they have not."""
    found = dict(re.findall(r"<!-- ([\w ]+) -->\n(.*?)<!-- end of \1 -->", PAGE, re.S))
    wanted = blocks_of(RESULTS)
    assert {"table 3", "inference gap", "figure 4"} <= set(wanted)
    stripped = [{name: text.strip() for name, text in each.items()} for each in (found, wanted)]
    assert stripped[0] == stripped[1], "Run `python benchmarks/study.py document`."


def test_the_iterations_have_the_numbers_of_their_files():
    cells = {cell.method: cell for cell in read_cells(RESULTS / "table-3") if cell.data == "jsb"}
    prior, *after, last = np.mean(cells["avf-5"].by_iteration, axis=0)
    listed = f"{', '.join(f'{nats:.3f}' for nats in after)} and {last:.3f} nats"
    assert f"from {prior:.3f} at the prior to {listed}" in TEXT
    gains = -np.diff([prior, *after, last])
    assert np.all(np.diff(gains)[:-1] < 0)
    assert gains[-1] > gains[-2]
    assert after[0] > cells["avf"].mean


def test_cells_are_of_clean_trees():
    for path in RESULTS.glob("*/*/cell.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        # A whole revision without a plus: of a tree in which nothing was changed.
        assert re.fullmatch(r"[0-9a-f]{40}", record["revision"]), path
        assert record["command"].startswith("python benchmarks/study.py ")


def test_the_table_of_the_readme_has_the_numbers_of_its_files():
    found = study_numbers(read_cells(RESULTS / "table-3"))
    cells = {(row["data"], row["method"]): row for row in found if row["protocol"] == "best"}
    sets = ("piano", "musedata", "jsb", "nottingham")

    def row(name, texts):
        return f"| {name} | {' | '.join(texts)} |"

    def score(cell):
        star = "*" if cell and cell["was_cut"] else ""
        return f"{cell['nats']:.3f} ± {cell['seed_error']:.3f}{star}" if cell else ""

    rows = [
        row(f"{name} in the paper, corrected", [f"{cells[s, key]['published']:.2f}" for s in sets])
        for key, name in (("avf", "AVF"), ("baseline", "baseline"))
    ]
    for method, name in (
        ("baseline", "the published baseline"),
        ("residual", "baseline of Fraccaro et al."),
        ("avf", "AVF, K=1"),
        ("avf-5", "AVF, K=5"),
    ):
        rows.append(row(name, [score(cells.get((data, method))) for data in sets]))
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert set(rows) <= set(lines)


def test_the_first_cells_have_the_numbers_of_their_files():
    first = read_cells(RESULTS / "table-3-first")
    cells = {cell.method: cell for cell in first if cell.data == "jsb"}
    scores = np.sort(np.mean(cells["avf"].nats, axis=1))
    good, bad = scores[:4], scores[4:]
    for sentence in (
        f"({bad[0]:.2f} to {bad[-1]:.2f} on the test part)",
        f"the other four have {good[0]:.2f} to {good[-1]:.2f};",
        f"with a quarter dropped, has {cells['baseline'].mean:.3f} in the mean",
        f"without dropout, {cells['residual'].mean:.3f} (",
    ):
        assert sentence in TEXT
    cells = {cell.method: cell for cell in first if cell.data == "musedata"}
    means = [f"{cells[method].mean:.3f}" for method in ("baseline", "residual", "avf")]
    assert f"({means[0]}, {means[1]} and {means[2]};" in TEXT


def test_the_command_makes_the_table_of_a_folder(tmp_path):
    rng = np.random.default_rng(2)
    for method, effect in (("baseline", 0.0), ("avf", -0.1)):
        write_cell(tmp_path / "cells", f"srnn-jsb-{method}-paper", drawn(rng, effect)[:2, :5])
    words = ("reproduce", "table-3", "--out", str(tmp_path), "--from-results")
    out = succeed(*words, str(tmp_path / "cells")).out
    cells = read_cells(tmp_path / "cells")
    table = study_markdown(cells)
    assert "\n".join(study_lines(cells)) in out
    assert "| 7.10 |" in table
    assert (tmp_path / "table-3-study.md").read_text() == table
    rows = json.loads((tmp_path / "table-3-study.json").read_text())
    assert [row["num_seeds"] for row in rows] == [2, 2]
    words = ("reproduce", "table-1", "--out", str(tmp_path), "--from-results", str(tmp_path))
    assert "no cell of a study" in refuse(*words)
