"""Every medium has a page that a browser shows whole; several runs stand side by side."""

import json
import re

import pytest

from browser import look_at
from tiny_runs import MEDIA
from varfilter.cli.reports import Report
from varfilter.report import report


def media(*by_default):
    """All media, those by default that show what is claimed; the others are marked slow."""
    marks = {name: () if name in by_default else pytest.mark.slow for name in MEDIA}
    return pytest.mark.parametrize("medium", [pytest.param(n, marks=m) for n, m in marks.items()])


# Sounds and films are drawn as curves and rows, as the table and the songs are; a model of films
# takes half a minute to compile.
@media("table", "music")
def test_a_browser_shows_the_page_whole_on_every_screen(reported, tmp_path, medium):
    _, page, _ = reported(medium)
    measured, said, pictures = look_at(page, (1280, 400), tmp_path)
    assert said == ""
    assert set(measured) == {1280, 400}
    for width, found in measured.items():
        assert found["scroll"] <= width, "the page scrolls sideways"
        assert found["images"] >= 4
        assert found["blank"] == 0
        assert found["wrong"] == []
        assert found["asked"] == [], "the page asks for something elsewhere"
        # Not blank: ink in every stretch of a screen's height.
        assert found["height"] > 2000
        for begin in range(0, min(found["height"], 6000) - 700, 700):
            assert pictures[width][begin : begin + 700].std() > 5.0
    # Small screens have pictures of their own, with letters as large as the page's.
    assert max(measured[400]["drawn"]) < min(measured[1280]["drawn"])


@media("table", "music")
def test_the_page_is_self_contained_and_says_what_was_run(reported, medium):
    run, page, numbers = reported(medium)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|srcset|href)="(?!data:)', text)
    assert "<script" not in text
    assert text.count("<img alt=") == text.count("<source ")
    # Films have a text too, and one size for all screens; songs and sounds are played.
    assert text.count("<img ") == text.count("<img alt=") + text.count('<img class="film" alt=')
    assert ("<audio controls" in text) == (medium in ("music", "sound"))
    assert ('class="film"' in text) == (medium == "video")
    # What can be heard stands beside the data in numbers, which are no ears.
    is_heard = medium in ("music", "sound")
    assert ("nobody has listened" in text) == is_heard
    columns = numbers["runs"][0]["traits"]
    assert list(columns) == (["test", "made up (8)"] if is_heard else [])
    assert all(len(traits) > 4 for traits in columns.values())
    (found,) = numbers["runs"]
    for shown in (run.experiment.name, found["data"]["sha256"], found["bound"], found["revision"]):
        assert shown is None or shown in text
    assert f"{found['num_parameters']['model']:,} model" in text
    assert "heat &lt; $x$ &amp; y" in text or medium != "table"
    # What was inferred after each step is shown where the medium shows it.
    assert ("reconstructions</h2>" in text) == (medium != "table")
    # What is rare is said where it is known what is healthy.
    assert ("Alarms</h2>" in text) == (medium == "table")
    assert (found["alarms"] is None) == (medium != "table")


def test_several_runs_stand_side_by_side(reported, tmp_path):
    music, _, _ = reported("music")
    table, _, _ = reported("table")
    page = report([table, table, music], tmp_path / "three.html")
    numbers = json.loads((tmp_path / "three.json").read_text())
    names = [run["label"] for run in numbers["runs"]]
    assert len(names) == 3
    text = page.read_text(encoding="utf-8")
    for name in names:
        assert name in text
    # The learning curves of each data set: others have other scales.
    assert len(re.findall("of training batches and of the whole validation part", text)) == 2 * 2


def test_wrong_words_are_refused_in_a_line(reported, tmp_path, capsys):
    run, _, _ = reported("table")
    assert Report((tmp_path / "nowhere",))() == 2
    said = capsys.readouterr().err
    assert "not the folder of a run" in said
    assert said.count("\n") == 1
    assert Report((run.folder,), out=tmp_path / "page.pdf")() == 2
    assert ".html" in capsys.readouterr().err
    assert Report((run.folder,), out=tmp_path / "no" / "page.html")() == 2
    assert "no folder" in capsys.readouterr().err
    # As a user runs it, with the data read again; and when they are gone.
    assert Report((run.folder,), out=tmp_path / "page.html")() == 0
    assert str(tmp_path / "page.html") in capsys.readouterr().out
    path = run.folder.parent / "readings.csv"
    kept = path.rename(tmp_path / "elsewhere.csv")
    assert Report((run.folder,), out=tmp_path / "page.html")() == 2
    assert "readings.csv" in capsys.readouterr().err
    kept.rename(path)
