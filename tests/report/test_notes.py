"""Notes of a reader in a report: they name options as they are typed."""

from dataclasses import replace

from tiny_runs import chorales, keep_untrained, tiny
from varfilter.data import write_midi
from varfilter.media import load, source_of
from varfilter.report.summary import _facts
from varfilter.runs import Run


def test_notes_name_the_options_of_the_command(tmp_path):
    (tmp_path / "midi").mkdir()
    for number, song in enumerate(chorales().train):
        write_midi(song, tmp_path / "midi" / f"{number}.mid", steps_per_beat=3)
    source = replace(source_of(tmp_path / "midi"), steps_per_beat=1.0)
    dataset = load(source)
    run = Run.begin(tmp_path / "run", replace(tiny("music", tmp_path)[0], data=source), dataset)
    keep_untrained(run)
    assert any("`sampling='middle'`" in note for note in dataset.notes)
    notes = " ".join(_facts(run, dataset)["notes"])
    assert "a greater `--data.steps-per-beat` keeps more of them" in notes
    assert "`--data.sampling middle` all" in notes
