"""Tables of pages: what stays on one line, and what becomes of many columns on a phone."""

from varfilter.plots.page import table

HEAD = ["column", "time", "p-value", "cause"]


def test_numbers_and_dates_are_not_broken_and_sentences_are():
    shown = table(HEAD, [["2", "2024-03-12 02:20:00", "2.5e-08", "pressure: 1.69, expected 3.1"]])
    whole = [cell.rsplit(">", 1)[1] for cell in shown.split("</td>") if 'class="unbroken"' in cell]
    assert whole == ["2", "2024-03-12 02:20:00", "2.5e-08"]


def test_rows_become_lists_on_a_phone_unless_they_are_dense():
    rows = [["<a>", "1", "2", "3"]]
    assert 'class="stacked"' in table(HEAD, rows)
    assert 'class="dense"' in table(HEAD, rows, is_dense=True)
    assert "stacked" not in table(HEAD, rows, is_dense=True)
    assert 'class="stacked wide"' in table(list("abcdefgh"), [list("12345678")])
    assert "class" not in table(HEAD[:2], [["a", "b"]]).replace('class="scroll"', "")
    assert "&lt;a&gt;" in table(HEAD, rows)
