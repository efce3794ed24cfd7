"""The paper's tables and figures again: what is missing is said, what is trained is kept."""

import dataclasses
import json

import numpy as np
import pytest

from tiny_runs import SRNN, TINY, sentences
from varfilter.experiments import experiment_named
from varfilter.report import reproduce, reproduction
from varfilter.report.reproduction import wanted_by


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
    assert "left out" in told[0]
    assert not (tmp_path / "runs").exists()


def test_a_table_of_free_data_says_so_and_is_resumed(small_paper, tmp_path):
    told = []
    options = {"at_hand": True, "tell": told.append}
    page = reproduce("table-1", tmp_path, max_updates=1, **options)
    assert "INSTEAD" in told[0]
    first = json.loads((tmp_path / "table-1.json").read_text())
    for row in first["rows"]:
        assert row["is_at_hand"]
        assert row["data"] == "timit-sample"
        assert row["num_updates"] == 1
        assert np.isfinite(row["results"]["nats"])
    text = page.read_text(encoding="utf-8")
    assert "OTHER DATA" in text
    assert "A short try: at most 1 update(s) each" in text
    # Again: what is trained is not trained again, and scores the same.
    reproduce("table-1", tmp_path, max_updates=1, **options)
    assert json.loads((tmp_path / "table-1.json").read_text()) == first
    # The waveforms are of the run that is there.
    told.clear()
    page = reproduce("figure-3", tmp_path, max_updates=1, **options)
    assert (tmp_path / "figure-3-1.png").stat().st_size > 10_000
    assert page.read_text(encoding="utf-8").count("<img ") == 2
    assert not any("validation" in line for line in told)


def test_every_table_is_of_experiments_that_have_a_name():
    for what, count in (("table-1", 4), ("table-2", 2), ("table-3", 8)):
        assert len(wanted_by(what)) == count
    names = [each.name for each in wanted_by("figure-4")]
    assert names == ["vrnn-timit-avf", *(f"vrnn-timit-avf-k{k}" for k in (2, 4, 8))]
