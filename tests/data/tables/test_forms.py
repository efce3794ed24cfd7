"""Dates come back as they were written: in rows, in those of gaps, and in forecasts."""

import csv
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from varfilter.data.tables.columns import column_of
from varfilter.data.tables.forms import form_of
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.media.formats import write_rows
from varfilter.media.frames import frame_like
from varfilter.media.rows import Filtering
from varfilter.media.sequences import NewSequence
from varfilter.media.table import TableMedium, TableSource

MEDIUM = TableMedium()
FORMS = {
    "%Y-%m-%d %H:%M:%S": "h", "%Y-%m-%d %H:%M": "h", "%Y-%m-%dT%H:%M": "h",
    "%Y-%m-%dT%H:%M:%S": "h", "%Y-%m-%dT%H:%M:%SZ": "h", "%Y-%m-%d %H:%M:%S.%f": "250ms",
    "%d/%m/%Y": "D", "%m/%d/%Y": "D", "%d.%m.%Y %H:%M": "h", "%d.%m.%y": "D",
    "%-d/%-m/%Y %-H:%M": "6h", "%m/%d/%Y %I:%M:%S %p": "h", "%d-%b-%Y": "D", "%d-%b-%y": "D",
    "%b %d, %Y": "D", "%a, %d %B %Y %H:%M:%S": "h", "%Y/%m/%d": "D", "%Y-%m-%d": "D",
    "%Y%m%d": "D", "%b-%y": "MS", "%Y-%m-%dT%H:%M:%S+05:30": "h", "%Y-%m-%d %H:%M:%S-0330": "h",
}  # fmt: skip


def of_rows(made, data, tmp_path, rows):
    write_rows(rows, tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8") as file:
        return [row["date"] for row in csv.DictReader(file)]


def filtered(made, data, *, fill_gaps):
    for sequence in MEDIUM.sequences(made, TableSource("x"), data):
        assert isinstance(sequence, NewSequence)
        assert sequence.given is not None
        nats = np.zeros(len(sequence.xs))
        said = Filtering(sequence.name, sequence.rows, sequence.times, {}, nats)
        yield from MEDIUM.step_rows(made, said.as_given(sequence.given, fill_gaps=fill_gaps))


def ahead(made, data, horizon):
    for sequence in MEDIUM.sequences(made, TableSource("x"), data):
        _, steps = MEDIUM.ahead(made, sequence, horizon, None)
        parts = {"mean": np.zeros((horizon, len(made.columns)))}
        yield from MEDIUM.forecast_rows(made, steps.times, parts, sequence.name)


@pytest.mark.parametrize(("form", "freq"), FORMS.items())
def test_dates_come_back_as_they_were_written(form, freq, tmp_path):
    texts = list(pd.date_range("2024-01-20", periods=50, freq=freq).strftime(form))
    kept = [text for i, text in enumerate(texts[:45]) if i not in (7, 40)]
    data = {"date": np.array(kept, object), "x": np.arange(43) ** 1.5}
    pd.DataFrame(data).to_csv(tmp_path / "in.csv", index=False)
    made = read_table(tmp_path / "in.csv", calendar=False)
    record = json.loads(json.dumps(made.schema.as_json()))
    assert TableSchema.from_json(record).layout == made.schema.layout

    def out(rows):
        return of_rows(made, data, tmp_path, rows)

    path = tmp_path / "in.csv"
    assert out(filtered(made, path, fill_gaps=False)) == kept
    assert out(filtered(made, path, fill_gaps=True)) == texts[:45]
    assert out(ahead(made, path, 5)) == texts[45:]
    if form == "%Y%m%d":
        return
    # A column of text in a frame, or of arrays, is one again.
    for frame in (pd.DataFrame(data), pl.DataFrame(data), data):
        future = frame_like(frame, ahead(made, frame, 5), made.schema)
        assert list(future["date"]) == texts[45:]
    # Gaps of a table that is written in another way are as its own rows are.
    other = form if "%f" in form or "-0330" in form or "+05" in form else "%Y-%m-%d %H:%M:%S"
    if freq != "MS" and "Z" not in form:
        given = list(pd.date_range("2024-01-20", periods=9, freq=freq).strftime(other))
        given = {"date": np.array([*given[:3], *given[4:]], object), "x": np.arange(8.0)}
        every = pd.date_range("2024-01-20", periods=9, freq=freq).strftime(other)
        assert out(filtered(made, given, fill_gaps=True)) == list(every)


def test_what_has_no_form_is_written_as_iso_has_it():
    def form(*texts):
        column = column_of(texts)
        return form_of(texts, column.values.astype(np.int64), column.style, column.zone)

    assert form("1/2/2024", "13/12/2024") == "{day}/{month}/{year:04}"
    assert form("01/2/2024", "13/12/2024") == ""
    assert form("2024-01-01 06:00", "2024-01-01T07:00") == ""
    hours = pd.date_range("2024-01-20", periods=40, freq="90min").strftime("%d/%m/%Y %H:%M")
    clock = read_table({"date": list(hours), "x": np.arange(40.0)}).schema.layout.clock
    assert clock.text(np.datetime64("2024-01-20T01:30")) == "20/01/2024 01:30"
    assert clock.text(np.datetime64("2024-01-20T01:30:05")) is None  # nothing is lost
    assert clock.written_as_text(np.datetime64("2024-01-20T01:30:05")) == "2024-01-20T01:30:05"
