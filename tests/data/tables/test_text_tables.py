"""Tables of text as they are: names are kept, and what is not whole is told by its line."""

import gzip

import numpy as np
import pytest

from plants import everything, lines, write
from refusals import refuses
from varfilter.data.tables.read import read_table

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROWS = [f"{i}.5,{i % 7}.25,{i * 3}.125" for i in range(40)]


def test_names_are_those_of_the_file(tmp_path):
    for header, names in {
        "a,a_duplicated_0,b": ("a", "a_duplicated_0", "b"),
        "a_duplicated_0,a,b": ("a_duplicated_0", "a", "b"),
        '"a ""in"" b","c, d",e': ('a "in" b', "c, d", "e"),
        '"two\nlines",b,"c"': ("two\nlines", "b", "c"),
        "0,1,x": ("0", "1", "x"),
        " warm , cold,_duplicated_0": ("warm", "cold", "_duplicated_0"),
    }.items():
        table = read_table(lines(tmp_path, header, *ROWS))
        assert table.columns == names
        np.testing.assert_array_equal(
            everything(table), np.array([row.split(",") for row in ROWS], np.float32)
        )
        assert table.notes[0].startswith("No column is the time")
    for header, twice in {"a,b,a": "a", 'x," b",b': "b", "a,,": ""}.items():
        path = lines(tmp_path, header, *ROWS)
        refuses(lambda path=path: read_table(path), ValueError, f"two columns {twice!r}")
    # Of columns that are called by their names, not by what polars knows them by.
    path = lines(tmp_path, "a,b,c", *ROWS, '"5"x,1,2', "1,2,3")
    refuses(lambda: read_table(path), ValueError, "table.csv", "column 'a'")


def test_short_rows_are_told_by_their_lines(tmp_path):
    rows = list(ROWS)
    rows[3], rows[10] = "3.5,1.25", "10.5"
    path = lines(tmp_path, "a,b,c", *rows)
    table = read_table(path)
    # Row 3 stands below the names and three others.
    assert (
        "Lines 5, 12: fewer fields than the 3 columns. What is not there is taken as missing."
        in (table.notes)
    )
    values = everything(table)
    np.testing.assert_array_equal(np.isnan(values).sum(axis=1).nonzero()[0], [3, 10])
    np.testing.assert_array_equal(values[3], [3.5, 1.25, np.nan])
    # A field that is there and empty, an empty line: nothing that was changed.
    rows[3], rows[10] = "3.5,,", ""
    assert not any(
        "fewer fields" in note for note in read_table(lines(tmp_path, "a,b,c", *rows)).notes
    )
    many = [row.rpartition(",")[0] if i % 2 else row for i, row in enumerate(ROWS)]
    (note,) = [n for n in read_table(lines(tmp_path, "a,b,c", *many)).notes if "fewer" in n]
    assert note.startswith("Lines 3, 5, 7, 9, 11, 13 and 14 more: fewer")


def test_lines_in_quotes_count_as_lines_and_not_as_rows(tmp_path):
    rows = [f'{i}.5,"note, with\ntwo lines and ""quotes""",{i}.25' for i in range(30)]
    rows[4] = "4.5,short"
    table = read_table(lines(tmp_path, "a,remark,c", *rows))
    assert len(everything(table)) == 30
    # The four before have two lines each.
    assert any(note.startswith("Line 10: fewer fields") for note in table.notes)
    path = lines(tmp_path, "a,remark,c", *rows[:3], '9.5,"this goes on', "1,2,3")
    refuses(lambda: read_table(path), ValueError, "quote in line 8", "twice")
    path = lines(tmp_path, "a,remark,c", *rows[:3], "1,2,3,4")
    refuses(lambda: read_table(path), ValueError, "4 fields in line 8")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_file_that_was_cut_off_says_where(tmp_path, ending):
    whole = ending.join(["a,b,c", *ROWS, ""])
    assert not any("the last" in note for note in read_table(write(tmp_path, whole)).notes)
    cut = whole[: whole.index("39.5") + 6]  # "39.5,4"
    table = read_table(write(tmp_path, cut))
    (note,) = [note for note in table.notes if "the last" in note]
    assert note.startswith("Line 41, the last, breaks off: it has 2 of 3 fields.")
    assert not any("fewer fields" in note for note in table.notes)
    np.testing.assert_array_equal(everything(table)[-1], [39.5, 4.0, np.nan])
    # In the last field nothing tells but that the line has no end.
    for text in (whole.rstrip(), whole.rstrip()[:-2]):
        (note,) = [n for n in read_table(write(tmp_path, text)).notes if "the last" in n]
        assert note.startswith("Line 41, the last, has no end")


def test_a_packed_file_is_the_same_table(tmp_path):
    path = lines(tmp_path, '"a ""x""",b,c', *ROWS[:-1], "9.5")
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    plain, packed = read_table(path), read_table(tmp_path / "table.csv.gz")
    assert plain.sha256() == packed.sha256()
    assert plain.notes == packed.notes
    whole = (tmp_path / "table.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-20])
    refuses(lambda: read_table(tmp_path / "cut.csv.gz"), ValueError, "cut.csv.gz", "ended before")


def test_a_new_table_with_short_rows_is_a_warning(tmp_path):
    schema = read_table(lines(tmp_path, "a,b,c", *ROWS)).schema
    path = lines(tmp_path, "a,b,c", *ROWS[:5], "7.5", name="new.csv")
    with pytest.warns(UserWarning, match=r"new\.csv: Line 7: fewer fields"):
        assert len(schema.read(path).rows.values) == 6
