"""The paper's tables and figures again: what is missing is said, what is trained is kept."""

import dataclasses
import json
import re
from contextlib import nullcontext

import numpy as np
import pytest

from tiny_runs import SRNN, TINY, sentences
from varfilter.experiments import experiment_named
from varfilter.report import reproduce, reproduction
from varfilter.report.paper_tables import terminal_table
from varfilter.report.reproduction import Interrupted, wanted_by
from varfilter.runs.training import Updated


@pytest.fixture
def small_paper(monkeypatch):
    """One experiment of the paper's, tiny, on a few sequences in the place of the free data."""
    experiments = {
        name: dataclasses.replace(experiment_named(name), model=SRNN, **TINY)
        for name in ("srnn-timit-avf", "srnn-timit-sample-avf")
    }
    dataset = sentences()

    def load(source):
        if source.source == "timit":
            raise FileNotFoundError("timit is not here. It is sold by the LDC.")
        return dataset

    monkeypatch.setattr(reproduction, "load", load)
    monkeypatch.setattr(reproduction, "EXPERIMENTS", experiments)
    monkeypatch.setattr(reproduction, "experiment_named", experiments.__getitem__)


def test_a_table_says_what_is_missing(small_paper, tmp_path):
    told = []
    page = reproduce("table-1", tmp_path, max_updates=1, tell=told.append)
    numbers = json.loads((tmp_path / "table-1.json").read_text())
    assert [row["wanted"] for row in numbers["rows"]] == ["srnn-timit-avf"]
    assert all("sold by the LDC" in row["missing"] for row in numbers["rows"])
    for text in (page.read_text(), (tmp_path / "table-1.md").read_text()):
        assert "missing" in text
        assert "1,024" in text
        assert "1,028" in text
    assert "srnn-timit-avf  left out: timit is not here" in told[1]
    assert told[-1] == "timit is not here; --at-hand takes timit-sample, which is free."
    assert not (tmp_path / "runs").exists()


def until_the_first_update(run, events):
    return nullcontext(lambda event: isinstance(event, Updated))


def test_a_table_of_free_data_says_so_and_is_resumed(small_paper, tmp_path):
    told = []
    options = {"at_hand": True, "tell": told.append, "max_updates": 2}
    with pytest.raises(Interrupted):
        reproduce("table-1", tmp_path, watch=until_the_first_update, **options)
    # What will be trained and how long that takes comes before it is.
    assert re.fullmatch(r"  srnn-timit-sample-avf  to train: 2 updates, .* m?s", told[1])
    assert re.match(r"In all about .* on \d+ cores? of a CPU", told[2])
    assert "INSTEAD" in told[4]
    assert not (tmp_path / "table-1.json").exists()
    # It goes on from there.
    told.clear()
    page = reproduce("table-1", tmp_path, **options)
    assert "goes on: 1 of 2 updates, another " in told[1]
    assert "validation" in told[5]
    first = json.loads((tmp_path / "table-1.json").read_text())
    for row in first["rows"]:
        assert row["is_at_hand"]
        assert row["data"] == "timit-sample"
        assert row["num_updates"] == 2
        assert np.isfinite(row["results"]["nats"])
    text = page.read_text(encoding="utf-8")
    assert "OTHER DATA" in text
    assert "A short try: at most 2 updates each" in text
    # Again: what is trained is not trained again, and scores the same.
    told.clear()
    reproduce("table-1", tmp_path, **options)
    assert "trained: 2 updates" in told[1]
    assert json.loads((tmp_path / "table-1.json").read_text()) == first
    # The waveforms are of the run that is there.
    told.clear()
    page = reproduce("figure-3", tmp_path, **options)
    assert (tmp_path / "figure-3-1.png").stat().st_size > 10_000
    assert page.read_text(encoding="utf-8").count("<img ") == 2
    assert not any("validation" in line for line in told)


@pytest.mark.parametrize("what", ["table-1", "table-2", "table-3", "figure-4"])
def test_tables_fit_the_terminal(what):
    results = {"nats": 11870.123, "standard_error": 1234.56}
    rows = [
        {
            "wanted": experiment.name,
            "data_wanted": experiment.data.source,
            "experiment": experiment.name.replace("-timit-", "-timit-sample-"),
            "data": "timit-sample",
            "missing": "It is not here, " * 20 if number % 2 else None,
            "is_at_hand": True,
            "published": experiment.published and vars(experiment.published),
            "results": None if number % 2 else results,
            "num_updates": 48_300,
        }
        for number, experiment in enumerate(wanted_by(what))
    ]
    lines = terminal_table({"rows": rows, "max_updates": 12})
    assert max(map(len, lines)) < 80
    assert "11,870.1" in lines[1]
    assert any("is missing" in line for line in lines)


def test_every_table_is_of_experiments_that_have_a_name():
    for what, count in (("table-1", 4), ("table-2", 2), ("table-3", 8)):
        assert len(wanted_by(what)) == count
    names = [each.name for each in wanted_by("figure-4")]
    assert names == ["vrnn-timit-avf", *(f"vrnn-timit-avf-k{k}" for k in (2, 4, 8))]
