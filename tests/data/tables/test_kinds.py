"""Which family a column has: by a rule on the training rows, as asked for, and on record."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from kinds_of_columns import KINDS, LEVELS, one_of_each
from refusals import refuses
from varfilter import distributions
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.marginals import marginal_of
from varfilter.data.tables.read import read_table
from varfilter.data.tables.tails import student_fit
from varfilter.media import medium_of
from varfilter.media.table import TableSource
from varfilter.runs.run import data_record, data_template


@pytest.fixture(scope="module")
def made():
    return read_table(one_of_each())


def test_each_column_has_the_family_that_its_training_rows_show(made):
    assert made.schema.kinds == KINDS
    assert set(made.schema.reasons) == set(KINDS)
    assert made.schema.reasons["steps"] == "only whole numbers from 0 to 1,000"
    families = dict(zip(made.columns, made.family, strict=True))
    assert {name: family.distribution.__name__ for name, family in families.items()} == {
        "noise": "Normal",
        "shock": "StudentT",
        "rain": "ZeroInflated",
        "share": "Rectified",
        "on": "Bernoulli",
        "steps": "DiscretizedNormal",
        "faults": "NegativeBinomial",
        **{f"state={level}": "Categorical" for level in LEVELS},
    }
    # 3 was drawn from; 480 values tell it to within a factor of two.
    assert 2.5 < families["shock"].freedom < 6.0
    scaling = dict(zip(made.columns, made.scaling.scale, strict=True))
    offset = dict(zip(made.columns, made.scaling.offset, strict=True))
    assert families["share"].high == pytest.approx((1.0 - offset["share"]) / scaling["share"])
    assert families["share"].low is None  # of 480 values, few are 0
    assert offset["rain"] == 0.0
    assert "480 different ones in 480 training rows" in made.schema.left_out["note"]
    assert made.schema.left_out["site"] == "text, 'north' throughout"
    notes = " ".join(made.notes)
    for word in (
        "degrees of freedom",
        "are 0, and none is below",
        "exactly 1, the highest",
        "Columns taken as binary (only 0 and 1, or true and false): on.",
    ):
        assert word in notes
    assert "Column 'state' has 3 levels: busy, down, idle." in notes


def test_later_rows_decide_nothing_and_what_they_have_anew_is_missing_and_said():
    later = one_of_each()
    later["noise"][-60:] = np.random.default_rng(0).standard_cauchy(60)
    later["state"][-2:] = "burnt"
    found = read_table(later)
    assert found.schema.kinds == KINDS
    assert np.isnan(found.test.values[-2:, 7:10]).all()
    assert any("'burnt' (2 values), no level" in note for note in found.notes)
    later["rain"][-1] = -1.0
    refuses(lambda: read_table(later), ValueError, "`rain`", "from 0 on", "{'rain': 'numeric'}")


def test_a_level_is_an_element_that_is_1(made):
    table = one_of_each()["state"][: len(made.train.values)]
    elements = made.train.values[:, 7:10]
    np.testing.assert_array_equal(elements.sum(axis=1), 1.0)
    assert [LEVELS[i] for i in elements.argmax(axis=1)] == list(table)


@pytest.mark.parametrize("kind", ["object", "category", "polars", "enum"])
def test_every_frame_has_the_same_levels(made, kind):
    table = one_of_each()
    frame = pd.DataFrame(table)
    if kind == "category":
        frame["state"] = frame["state"].astype("category")
    if kind in ("polars", "enum"):
        frame = pl.DataFrame({n: v.tolist() for n, v in table.items()})
    if kind == "enum":
        frame = frame.with_columns(pl.col("state").cast(pl.Enum(LEVELS)))
    assert read_table(frame).sha256() == made.sha256()


@pytest.mark.parametrize("library", ["pandas", "polars", "enum"])
def test_numbers_of_a_categorical_type_are_levels(library):
    """In the order of the type, where it has one, and although they would be a count."""
    x, grade = np.random.default_rng(0).normal(size=100), np.arange(100) % 3 + 9
    order = ("11", "9", "10")
    if library == "pandas":
        typed = pd.Categorical(grade, categories=[11, 9, 10, 12])
        frame = pd.DataFrame({"x": x, "grade": typed})
    else:
        kind = pl.Categorical if library == "polars" else pl.Enum(["11", "9", "10", "12"])
        frame = pl.DataFrame({"x": x, "grade": pl.Series(map(str, grade.tolist()), dtype=kind)})
        order = ("9", "10", "11") if library == "polars" else order
    made = read_table(frame)
    assert made.schema.kinds == {"x": "numeric", "grade": "categorical"}
    assert made.schema.levels == {"grade": order}
    assert any("'grade' is of a categorical type" in note for note in made.notes)
    # New tables may have them as they like, and who asks for a count gets one.
    for new in (grade[:5], [str(each) for each in grade[:5]], frame["grade"][:5]):
        rows = made.schema.read({"x": x[:5], "grade": np.asarray(new)}).rows[0]
        assert [order[i] for i in rows[:, 1:].argmax(axis=1)] == ["9", "10", "11", "9", "10"]
    assert read_table(frame, kinds={"grade": "count"}).schema.kinds["grade"] == "count"


@pytest.mark.parametrize(
    ("name", "top", "is_bounded"),
    [
        ("soil_fraction", 1.0, True),
        ("Humidity (%)", 100.0, True),
        ("cpu-pct", 100.0, True),
        ("cpu-pct", 1.0, False),  # a share that is called so
        ("share", 100.0, False),
        ("shared", 1.0, False),
        ("pct_change", 100.0, False),
        ("x", 1.0, False),
    ],
)
def test_what_is_called_a_share_is_held_within_its_bounds(name, top, is_bounded):
    """So that no forecast leaves them, although no training value is at one."""
    values = np.clip(np.random.default_rng(0).normal(0.7, 0.1, 200), 0.02, 0.98)
    made = read_table({name: top * values})
    family = made.family[0]
    assert (made.schema.kinds[name] == "bounded") == is_bounded
    if is_bounded:
        bounds = made.scaling.restore(np.array([[family.low], [family.high]]))
        np.testing.assert_allclose(bounds[:, 0], [0.0, top], atol=1e-5 * top)
        assert any(f"within 0 and {top:g}" in note for note in made.notes)
        # What was learned of it stays as it is where a later row lies beyond.
        later = made.schema.read({name: [0.5 * top, 1.5 * top]}).rows[0]
        assert later[:, 0].tolist() == [0.5 * top, 1.5 * top]
    below = {name: np.r_[-0.1, top * values]}
    assert read_table(below).schema.kinds[name] == "numeric"


def test_what_is_asked_for_is_taken():
    kinds = {
        "rain": "numeric",
        "steps": "events",
        "faults": "categorical",
        "shock": "numeric change",
    }
    found = read_table(one_of_each(), columns=["shock", "rain", "steps", "faults"], kinds=kinds)
    asked = {"shock": "numeric", "rain": "numeric", "steps": "events", "faults": "categorical"}
    assert found.schema.kinds == asked
    assert found.schema.levels["faults"][:4] == ("0", "1", "2", "3")
    assert found.schema.motions == {"shock": "change"}
    both = read_table(one_of_each(), columns=["shock"], kinds={"shock": "heavy log-change"})
    assert (both.schema.kinds, both.schema.motions) == ({"shock": "heavy"}, {"shock": "log-change"})
    # With a space at the prompt, in quotes or not.
    for words in (("price=heavy log-change",), ("price=heavy", "log-change")):
        source = TableSource("a.csv", kinds=("rain=zeros,state=categorical", *words))
        assert source.options()["kinds"]["price"] == "heavy log-change"
    shares = {"x": np.random.default_rng(0).uniform(0.2, 0.8, 100)}
    family = read_table(shares, kinds={"x": "bounded"}).family[0]
    assert family.low < 0 < family.high  # 0 and 1, which no value is near


def test_what_cannot_be_is_refused():
    def read(**kinds):
        return lambda: read_table(one_of_each(), kinds=kinds)

    refuses(read(rain="zeros change"), ValueError, "`kinds['rain']`", "zeros", "numeric change")
    refuses(read(share="bounded log"), ValueError, "`kinds['share']`", "bounded", "numeric log")
    refuses(read(state="numeric"), ValueError, "`kinds['state']`", "text", "categorical")
    refuses(read(state="categorical change"), ValueError, "`kinds['state']`", "categorical")
    refuses(read(site="categorical"), ValueError, "'site'", "'north' throughout")
    refuses(read(note="categorical"), ValueError, "'note'", "480 levels", "256")
    refuses(read(noise="zeros"), ValueError, "`noise`", "from 0 on")
    refuses(read(noise="bounded"), ValueError, "`kinds['noise']`", "bounded", "numeric")
    refuses(lambda: read_table(one_of_each(), columns=["note"]), ValueError, "'note'", "different")


def test_a_record_has_the_levels_and_one_of_before_reads_its_data_as_they_were(made):
    record = json.loads(json.dumps(data_record(made)))
    template = data_template(record)
    assert template.family == made.family
    assert template.schema.levels == {"state": LEVELS}
    medium = medium_of(made)
    again = medium.as_recorded(TableSource("a.csv"), template.schema).options()
    assert read_table(one_of_each(), **again).sha256() == made.sha256()
    # Of before: what was numbers alone, and a Gaussian or its whole numbers.
    old = record["schema"]
    del old["levels"]
    old["kinds"] = dict.fromkeys(("noise", "shock", "rain", "share"), "numeric") | {
        "faults": "count"
    }
    for family in record["families"]:
        del family["freedom"], family["group"]
    assert data_template(record).family[0] == made.family[0]
    again = medium.as_recorded(TableSource("a.csv"), medium.schema(old)).options()
    before = read_table(one_of_each(), **again)
    assert before.schema.kinds == old["kinds"]
    names = {family.distribution for family in before.family}
    assert names == {distributions.Normal, distributions.DiscretizedNormal}


def test_a_new_table_and_live_lines_have_the_same_elements(made):
    table = one_of_each(5, seed=3)
    table["state"][1:3] = [None, "burnt"]
    with pytest.warns(UserWarning, match="'burnt', no level of the training rows"):
        rows = made.schema.read(pd.DataFrame(table)).rows[0]
    assert np.isnan(rows[1:3, 7:10]).all()
    lines = TableLines(made.schema)
    for t in range(5):
        line = {name: values[t] for name, values in table.items() if name not in ("note", "site")}
        (step,) = lines.read(json.dumps(line))
        np.testing.assert_array_equal(step.row, rows[t])
    assert lines.notes == [
        "Column 'state' has 'burnt', no level of the training rows: taken as missing."
    ]
    with pytest.raises(ValueError, match="where text or null must be"):
        lines.read('{"state": ["idle"]}')
    # Absurd numbers are the filter's to judge, where a column is of numbers at all.
    assert np.isfinite(lines.read('{"rain": -1e300, "share": 7}')[0].row[[2, 3]]).all()


def test_counts_that_vary_less_than_events_do_stay_counts():
    """A level that moves slowly by itself: all values together look like a negative binomial."""
    rng = np.random.default_rng(0)
    slow = np.rint(60.0 + 40.0 * np.sin(np.arange(900) / 60.0) + rng.normal(size=900))
    assert read_table({"x": slow}, kinds={"x": "level"}).schema.kinds == {"x": "count"}


def test_fits_are_those_of_the_laws_that_were_drawn_from():
    rng = np.random.default_rng(1)
    heavy = student_fit(5.0 + 2.0 * rng.standard_t(4.0, 20_000))
    # A grid of degrees of freedom; scale and centre by 20,000 values.
    assert heavy.freedom == pytest.approx(4.0, abs=0.6)
    assert heavy.scale == pytest.approx(2.0, rel=0.05)
    assert heavy.gain > 100.0
    assert student_fit(rng.normal(size=2000)).gain < 3.0
    assert student_fit(np.ones(50)).gain == 0.0


def test_the_marginal_of_each_family_is_near_the_shares_of_its_values():
    table = one_of_each(6000)
    for name, kind in KINDS.items():
        if kind == "categorical":
            continue
        fit = marginal_of(kind, "level", [table[name]])
        assert fit.shares.sum() == pytest.approx(1.0)
        if fit.expected is None:
            continue
        assert fit.expected.sum() == pytest.approx(1.0)
        # Mixtures of the states' laws, by 6000 values in 40 bins: within two in a hundred of all.
        distance = 0.5 * np.abs(fit.shares - fit.expected).sum()
        assert distance < 0.09, name
        if fit.gaussian is not None:
            assert distance < 0.5 * np.abs(fit.shares - fit.gaussian).sum(), name


def test_text_that_tells_sequences_apart_is_left_out_and_said():
    """What never changes in a sequence is a name of it: there is nothing to predict."""
    table = {"x": np.random.default_rng(0).normal(size=200), "run": np.arange(200) // 20}
    table["pump"] = np.array(["A", "B"], object)[table["run"] % 2]
    found = read_table(table)
    assert found.columns == ("x",)
    assert found.schema.left_out["pump"].endswith("the same throughout each sequence")
    assert read_table(table, kinds={"pump": "categorical"}).columns == ("x", "pump=A", "pump=B")
