"""Columns that move on are told by their changes: by a rule, or as asked for, and on record."""

import json

import numpy as np
import pytest

from refusals import refuses
from varfilter.data.tables.motion import dickey_fuller, transform_of, usual_motion
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.media import medium_of
from varfilter.media.table import TableSource
from varfilter.runs.metrics import TrainingRange
from varfilter.runs.run import data_record, data_template


def autoregression(factor: float, count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    found = np.zeros(count)
    for t in range(1, count):
        found[t] = factor * found[t - 1] + random.normal()
    return found


def word(values: np.ndarray, kind: str = "numeric", **options) -> str:
    return usual_motion(kind, [values], **{"goes_on": True, **options}).word


def rising(count: int = 200, seed: int = 0) -> np.ndarray:
    """A value that grows by two percent a step, more or less."""
    random = np.random.default_rng(seed)
    return 10.0 * np.exp(np.cumsum(0.02 + 0.02 * random.normal(size=count)))


def table(count: int = 240) -> dict:
    random = np.random.default_rng(3)
    return {
        "price": rising(count),
        "walk": 50.0 + np.cumsum(random.normal(size=count)) + 0.3 * np.arange(count),
        "still": random.normal(size=count),
        "on": (random.random(count) > 0.5).astype(float),
        "orders": np.round(100 + 2.0 * np.arange(count) + 3.0 * random.normal(size=count)),
    }


class TestTheRule:
    def test_a_random_walk_is_told_by_its_change_and_what_comes_back_as_it_is(self):
        """At 5%: of twenty random walks about one is taken for what comes back."""
        walks = [word(autoregression(1.0, 300, seed)) for seed in range(20)]
        assert walks.count("level") <= 3
        assert {word(autoregression(0.9, 600, seed)) for seed in range(20)} == {"level"}
        assert word(np.random.default_rng(0).normal(size=300)) == "level"

    def test_a_trend_is_told_by_its_change_although_it_is_drawn_to_a_line(self):
        random = np.random.default_rng(1)
        trend = 0.2 * np.arange(300) + random.normal(size=300)
        assert word(trend) == "change"
        # Beside held-out sequences that rise alike, no level is new.
        statistic, critical = dickey_fuller([trend])
        assert (word(trend, goes_on=False) == "level") == (statistic < critical)

    def test_what_grows_by_proportion_is_told_by_its_logarithm(self):
        assert word(rising()) == "log-change"
        assert word(rising() - 20.0) == "change"  # not all are positive
        assert word(1000.0 + np.cumsum(0.3 + np.random.default_rng(0).normal(size=300))) == "change"

    def test_a_season_that_the_inputs_tell_is_a_mean_to_come_back_to(self):
        random, t = np.random.default_rng(2), np.arange(1200)
        wave = np.stack([np.sin(2 * np.pi * t / 365), np.cos(2 * np.pi * t / 365)], axis=1)
        values = 10.0 * wave[:, 0] + autoregression(0.7, 1200, 5) + random.normal(size=1200)
        told = dickey_fuller([values], [wave])
        assert told[0] < told[1]
        assert told[0] < dickey_fuller([values])[0]

    def test_noise_that_comes_and_goes_is_not_predicted_by_its_change(self):
        """The last value leaves more than a quarter of the variance of what is mostly noise."""
        walk = 0.3 * autoregression(1.0, 400, 4)
        noisy = walk + 2.0 * walk.std() * np.random.default_rng(5).normal(size=400)
        assert word(noisy, goes_on=False) == "level"

    def test_few_rows_bits_and_gaps_are_no_reason_to_fail(self):
        assert word(np.arange(20.0)) == "level"
        assert word((np.arange(100) > 50).astype(float), kind="binary") == "level"
        gaps = autoregression(1.0, 400)
        gaps[1::2] = np.nan  # no two rows in a row
        assert word(gaps) == "level"
        gaps = autoregression(1.0, 400, 1)
        gaps[::7] = np.nan
        assert word(gaps) == "change"
        assert word(np.full(100, 3.0)) == "level"
        assert word(np.arange(100.0)) == "change"  # without any noise at all

    def test_dickey_fuller_is_the_t_value_of_least_squares(self):
        values = autoregression(0.8, 100)
        rows = np.stack(
            [np.ones(95), values[4:-1], *(np.diff(values)[4 - i : -i] for i in range(1, 5))]
        )
        target = np.diff(values)[4:]
        factors, residual, *_ = np.linalg.lstsq(rows.T, target, rcond=None)
        error = np.sqrt(residual[0] / (95 - 6) * np.linalg.inv(rows @ rows.T)[1, 1])
        assert dickey_fuller([values])[0] == pytest.approx(factors[1] / error, rel=1e-8)


def test_what_a_model_is_told_has_mean_0_and_spread_1_in_training():
    for motion in ("change", "log", "log-change"):
        values = rising()
        found = transform_of(motion, [values], finest=1e-6)
        told = np.log(values) if motion.startswith("log") else values
        if found.log_scale is not None:
            told = (told - found.log_centre) / found.log_scale
        if found.change_scale is not None:
            told = (np.diff(told) - found.drift) / found.change_scale
        assert told.mean() == pytest.approx(0.0, abs=1e-9)
        assert told.std() == pytest.approx(1.0)
    # What does not change at all has the scale that 32-bit numbers can tell.
    assert transform_of("change", [np.arange(100.0)], finest=1e-6).change_scale == pytest.approx(
        1e-4
    )


def test_a_table_is_read_with_the_motion_of_each_column():
    dataset = read_table(table())
    assert dataset.schema.motions == {"price": "log-change", "walk": "change", "orders": "change"}
    assert dataset.schema.kinds["orders"] == "count"
    _, walk, still, on, orders = dataset.family
    assert (still.transform, on.transform) == (None, None)
    # A logarithm needs its 0 where it was; the unit is the spread, as of every other column.
    assert dataset.scaling.offset[0] == 0.0
    assert dataset.scaling.scale[0] == pytest.approx(np.std(dataset.train.values[:, 0]), rel=1e-5)
    # The changes of a count have its levels, in units of their own spread, and no lowest one.
    assert orders.model_family.width == pytest.approx(orders.width / orders.transform.change_scale)
    assert orders.model_family.low is None
    assert orders.low is not None
    assert walk.model_family.distribution is walk.distribution
    notes = " ".join(dataset.notes)
    assert "'walk', 'orders' is predicted by its change since the step before" in notes
    assert "'price' is predicted by the change of its logarithm" in notes
    assert "price=level" in notes


def test_motions_are_chosen_by_the_training_rows_alone():
    values = table()
    later = {name: column.copy() for name, column in values.items()}
    later["still"][200:] += 50.0 * np.arange(40)
    assert read_table(later).schema.motions == read_table(values).schema.motions


def test_what_is_asked_for_is_taken():
    kinds = {"price": "change", "walk": "level", "still": "change", "orders": "numeric log"}
    dataset = read_table(table(), kinds=kinds)
    assert dataset.schema.motions == {"price": "change", "still": "change", "orders": "log"}
    assert dataset.schema.kinds["orders"] == "numeric"
    # Whole numbers have logarithms, which are none; their family is the rule's to choose.
    by_log = read_table(table(), kinds={"orders": "log-change"})
    assert by_log.schema.kinds["orders"] in ("numeric", "heavy")
    assert "as asked for" in " ".join(dataset.notes)
    source = TableSource("a.csv", kinds=("price=level,walk=log", "orders=count", "orders=change"))
    assert source.options()["kinds"] == {"price": "level", "walk": "log", "orders": "count change"}


def test_what_cannot_be_is_refused():
    def read(**kinds):
        return lambda: read_table(table(), kinds=kinds)

    refuses(read(price="speed"), ValueError, "`kinds['price']`", "log-change", "'speed'")
    refuses(read(price="level change"), ValueError, "`kinds['price']`", "one of each")
    refuses(read(on="change"), ValueError, "`kinds['on']`", "binary", "numeric")
    refuses(read(orders="count log"), ValueError, "`kinds['orders']`", "count", "numeric log")
    refuses(read(still="log"), ValueError, "`still`", "logarithm", "{'still': 'change'}")
    crash = table()
    crash["price"][-1] = 0.0
    by_log = {"price": "log-change"}
    refuses(lambda: read_table(crash, kinds=by_log), ValueError, "`price`", "has 0", "'change'")
    # Where nobody asked for it, the column can be told without.
    assert read_table(crash).schema.motions["price"] == "change"


def test_a_record_has_the_motions_and_one_of_before_has_none():
    dataset = read_table(table())
    record = json.loads(json.dumps(data_record(dataset)))
    template = data_template(record)
    assert template.family == dataset.family
    assert template.schema.motions == dataset.schema.motions
    # A column that moves on has no range that it could leave.
    known = TrainingRange.of_record(record)
    assert set(known.outside(np.full((3, 5), 1e4))) == {"still", "on"}
    for family in record["families"]:
        del family["transform"]
    del record["schema"]["motions"]
    old = data_template(record)
    assert old.schema.motions == {}
    assert all(family.transform is None for family in old.family)


def test_data_are_read_again_as_they_were():
    """Whatever the rule says now: a run of before has all columns as they are."""
    dataset = read_table(table(), kinds={"orders": "numeric"})
    medium = medium_of(dataset)
    source = TableSource("a.csv", kinds=("orders=numeric",))
    known = dataset.schema.as_json()
    again = medium.as_recorded(source, TableSchema.from_json(known)).options()["kinds"]
    assert again["orders"] == "numeric change"
    assert again["still"] == "numeric level"
    del known["motions"]
    before = medium.as_recorded(source, TableSchema.from_json(known)).options()["kinds"]
    assert before == {name: f"{kind} level" for name, kind in dataset.schema.kinds.items()}
    assert read_table(table(), kinds=before).schema.motions == {}


def test_the_hash_of_data_says_how_they_are_told_and_is_as_before_without():
    still = {"x": np.random.default_rng(0).normal(size=100)}
    plain = read_table(still).sha256()
    assert plain == read_table(still, kinds={"x": "level"}).sha256()
    assert plain != read_table(still, kinds={"x": "change"}).sha256()
