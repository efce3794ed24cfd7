"""Lines of JSON: which step each is on, and which are bad."""

import json

import numpy as np
import pytest

from refusals import refuses
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table


@pytest.fixture
def lines():
    minutes = np.datetime64("2024-01-01T00:00") + np.arange(60) * np.timedelta64(10, "m")
    data = {"when": minutes, "a": np.arange(60.0), "b": np.arange(60.0) ** 1.5}
    return TableLines(read_table(data, calendar=False).schema, longest_gap=5)


def at(clock, **cells):
    return json.dumps({"when": f"2024-05-06T{clock}"} | cells)


def test_steps_lie_on_the_grid_and_keep_the_times_of_their_lines(lines):
    (first,) = lines.read(at("12:00", a=1))
    gap, second = lines.read(at("12:22", a=2))
    assert gap.own is None
    assert np.isnan(gap.row).all()
    assert [str(step.time)[11:16] for step in (first, gap, second)] == ["12:00", "12:10", "12:20"]
    assert second.own_time == np.datetime64("2024-05-06T12:22")
    assert second.text == "2024-05-06T12:22"
    # Without a time it is the next step; so it is where that is missing.
    for cells in ({"a": 3}, {"a": 3, "when": None}, {"a": 3, "when": "NA"}):
        (step,) = lines.read(json.dumps(cells))
    assert str(step.time)[11:16] == "12:50"
    assert step.own_time is None


def test_a_second_line_on_a_step_adds_what_the_first_had_not(lines):
    lines.read(at("12:00", a=1, b=1))
    lines.read(at("12:10", a=2))
    (step,) = lines.read(at("12:12", b=3))
    assert step.is_again
    np.testing.assert_array_equal(step.row, [2, 3])
    np.testing.assert_array_equal(step.own, [np.nan, 3])
    refuses(lambda: lines.read(at("12:13", b=4)), ValueError, "12:13", "12:12", "column `b`")
    refuses(lambda: lines.read(at("12:04", a=4)), ValueError, "12:04", "before", "12:12")
    # The one that was refused has left nothing behind.
    (step,) = lines.read(at("12:20", a=5))
    np.testing.assert_array_equal(step.row, [5, np.nan])
    assert not step.is_again


def test_other_known_inputs_on_one_step_are_told():
    data = {"t": np.arange(40.0), "a": np.arange(40.0), "u": np.arange(40) % 3}
    schema = read_table({**data, "v": np.arange(40) % 2}, inputs=["u", "v"]).schema
    lines = TableLines(schema)
    lines.read('{"t": 0, "a": 1, "u": 0, "v": 1}')
    lines.read('{"t": 1, "u": 0, "v": 1}')
    (step,) = lines.read('{"t": 1.2, "a": 1, "u": 0, "v": 1}')
    assert step.is_again
    assert lines.notes == []
    (step,) = lines.read('{"t": 1.3, "u": 2, "v": 1}')
    assert lines.notes == [
        "Column 'u', a known input, is not what the line before has on the same step: the last one"
        " counts."
    ]
    np.testing.assert_allclose(step.u, schema.inputs.scaled(np.array([[2, 1]]))[0], rtol=1e-6)
    # So it is in a file.
    two = {"t": [0, 1, 1.2], "a": [1, 1, np.nan], "u": [0, 0, 2], "v": [1, 1, 1]}
    with pytest.warns(UserWarning, match="1 row has other known inputs than a later row"):
        schema.read(two)


@pytest.mark.parametrize("begin", [8, 18])
def test_a_sequence_begins_anew_where_a_second_line_says_so(lines, begin):
    lines.read(at("12:00", a=1))
    lines.read(at("12:10", a=1))
    way = "before" if begin < 12 else "after"
    far = at(f"{begin:02}:00", a=1)
    refuses(lambda: lines.read(far), ValueError, way, "more than 5", "begins anew")
    # The same line once more says no more.
    refuses(lambda: lines.read(far), ValueError, way)
    (step,) = lines.read(at(f"{begin:02}:20", a=7))
    assert step.is_anew
    assert str(step.time)[11:16] == f"{begin:02}:20"
    steps = lines.read(at(f"{begin:02}:40", a=8))
    assert [step.own is None for step in steps] == [True, False]


def test_one_far_line_changes_nothing(lines):
    lines.read(at("12:00", a=1))
    refuses(lambda: lines.read(at("20:00", a=1)), ValueError, "48 steps", "`longest_gap`")
    (step,) = lines.read(at("12:10", a=2))
    assert not step.is_anew
    refuses(lambda: lines.read(at("20:10", a=1)), ValueError, "48 steps")
    # Six steps later five are empty: so many may be.
    assert len(lines.read(at("13:10", a=1))) == 6


def test_lines_of_a_table_with_sequences_name_theirs():
    runs = {"run": np.repeat(list("abc"), 20), "x": np.arange(60.0)}
    lines = TableLines(read_table(runs).schema)
    assert lines.read('{"run": "z", "x": 1}')[0].sequence == "z"
    refuses(lambda: lines.read('{"x": 1}'), ValueError, "column `run`", "every line")
    refuses(lambda: lines.read("{}"), ValueError, "none of the columns x", "empty")
    assert list(lines.sequences) == ["z"]
    # Where the table has none, a line need not have one either.
    lines = TableLines(read_table({"x": np.arange(60.0)}).schema)
    assert lines.read('{"x": 1}')[0].sequence == 0
    assert lines.read('{"sequence": 7, "x": 1}')[0].sequence == "7"
    refuses(lambda: lines.read("{}"), ValueError, "none of the columns x", "empty")


def test_numbers_that_were_written_as_text_are_times():
    lines = TableLines(read_table({"t": np.arange(60.0), "x": np.arange(60.0)}).schema)
    (step,) = lines.read('{"t": "3", "x": 1}')
    assert (step.own_time, step.text) == (3.0, None)
