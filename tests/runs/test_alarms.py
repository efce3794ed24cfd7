"""Alarms: the rate that was asked for, with and without missing cells; and what caused them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from varfilter.data import Dataset, Family, Ragged
from varfilter.data.tables.read import read_table
from varfilter.distributions import Bernoulli, Normal, ZeroInflated
from varfilter.media.rows import ColumnSurprises, Filtering, _bands, restored
from varfilter.models.columns import ColumnHead
from varfilter.prediction import _weighted_bands
from varfilter.runs.alarms import AlarmRule, require_rate
from varfilter.runs.calibration import (
    FEWEST_VALUES,
    FILE,
    Calibration,
    Settings,
    Tail,
    keep_calibration,
    known_calibration,
)

COLUMNS = ("hot", "warm", "on")
SETTINGS = Settings(256, 128, 1.1)
# Of two columns that go together, beside one that knows nothing of them.
CORRELATION = 0.95
COVARIANCE = np.array([[1.0, CORRELATION, 0.0], [CORRELATION, 1.0, 0.0], [0.0, 0.0, 1.0]])


def healthy(num_steps, rng, missing=0.0):
    rows = rng.multivariate_normal(np.zeros(3), COVARIANCE, num_steps)
    return np.where(rng.random(rows.shape) < missing, np.nan, rows)


def filtered(rows):
    """What an exact filter of N(0, COVARIANCE), which has no past, says of rows."""

    def excess(x, mean, variance):
        return 0.5 * (np.log(2 * np.pi) + (x - mean) ** 2 / variance)

    others = rows[:, [1, 0]]
    mean = np.where(np.isnan(others), 0.0, CORRELATION * others)
    variance = np.where(np.isnan(others), 1.0, 1 - CORRELATION**2)
    mean = np.column_stack([mean, np.zeros(len(rows))])
    variance = np.column_stack([variance, np.ones(len(rows))])
    ends = np.array([-1.645, 1.645])
    nats = excess(rows, 0.0, 1.0)
    columns = ColumnSurprises(
        nats,
        nats,
        excess(rows, mean, variance),
        np.broadcast_to(ends, (*rows.shape, 2)),
        mean[..., None] + ends * np.sqrt(variance)[..., None],
    )
    times = np.arange(len(rows))
    return Filtering("a", rows, times, {}, np.nansum(nats, axis=1), columns=columns)


@pytest.fixture(scope="module")
def rule():
    validated = filtered(healthy(2000, np.random.default_rng(0)))
    found = Calibration.of(SETTINGS, 7, COLUMNS, [validated])
    nothing = Ragged.of([np.zeros((1, 3))])
    family = (Family(Normal), Family(Normal), Family(Bernoulli))
    dataset = Dataset("pumps", *[nothing] * 3, family, columns=COLUMNS)
    return AlarmRule(found, 0.01, dataset)


@pytest.mark.parametrize("heavy", [0.0, 0.4])
def test_a_tail_knows_what_was_never_seen(heavy):
    """Excesses that are exponential, or Pareto; one in 1,000 and in 20,000 of them, by 2,000."""
    uniform = np.random.default_rng(1).random(2000)

    def quantile(p):  # what a part p lies beyond
        return -np.log(p) if heavy == 0.0 else (p**-heavy - 1.0) / heavy

    tail = Tail.of(quantile(uniform))
    # Half of the values: the empirical share is off by sqrt(0.25 / 2000) = 0.011.
    assert tail(quantile(0.5)) == pytest.approx(0.5, abs=0.04)
    assert 0.5 < tail(quantile(0.001)) / 0.001 < 2.0
    # The shape is off by (1 + shape) / sqrt(200) = 0.1, and log p at 1 in 20,000 by 13 times that.
    assert 1 / 5 < tail(quantile(0.00005)) / 0.00005 < 5.0
    assert np.all(np.diff(tail(np.linspace(0.0, 40.0, 500))) <= 0.0)
    assert tail(1e12) > 0.0 or heavy == 0.0
    assert np.isnan(tail(np.nan))


def test_a_value_that_most_have_is_not_rare():
    often = np.where(np.arange(400) % 40 == 0, 5.0, 0.1)
    tail = Tail.of(often)
    assert tail(0.1) > 0.9
    assert tail(5.0) < 0.1
    never = Tail.of(np.full(400, 0.1))
    assert never(0.1 + 1e-6) > 0.05  # a rounding
    assert never(5.0) < 1e-6
    assert Tail.of(often[: FEWEST_VALUES - 1]) is None


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_healthy_steps_raise_alarms_at_the_rate_that_was_asked_for(rule, missing):
    """Steps with missing cells too, although nothing was missing when they were calibrated."""
    steps = filtered(healthy(100_000, np.random.default_rng(2), missing))
    p_values = rule.judged(steps).alarms.p_values
    seen = np.isfinite(steps.columns.alone).any(axis=1)
    np.testing.assert_array_equal(np.isfinite(p_values), seen)
    for rate in (0.1, 0.01, 0.001):
        # 2,000 steps say a rate of 1 in 1,000 by their tail alone; 100 alarms are counted.
        assert rate / 2 < np.mean(p_values[seen] <= rate) < 2 * rate


@pytest.mark.parametrize(
    ("num_steps", "lasts", "most"), [(59, 0.0, 3.0), (150, 0.0, 2.5), (59, 0.8, 6.0)]
)
def test_few_validated_steps_raise_hardly_more_alarms_than_asked_for(num_steps, lasts, most):
    """Eight columns, each judged twice; with `lasts`, what is left of a step's value in the next.

    On average over calibrations, which scatter: of 40, each by a factor of 3 or so, the mean is off
    by a fifth. Judged by the same steps as it was fitted to, the rate of 59 was 4.8 and 7.2 times
    what was asked for at 0.02 and 0.01, and 29 times at 0.001; by others alone it is right, and
    less than half of that where few sequences were validated that differ. Steps that are like those
    before say less than as many others: 59 of them as much as 59 (1 - 0.64) / (1 + 0.64) = 13,
    since of the squares 0.64 lasts. Nothing in them says how rare the rarest of 1,000 is.
    """
    rng = np.random.default_rng(4)

    def columns(num_steps):
        values, others = rng.normal(size=(2, num_steps, 8))
        for t in range(1, num_steps):
            values[t] = lasts * values[t - 1] + np.sqrt(1 - lasts**2) * values[t]
        nats = values**2 / 2
        given = (0.6 * values + 0.8 * others) ** 2 / 2
        bands = np.zeros((*nats.shape, 2))
        return ColumnSurprises(nats, nats, given, bands, bands)

    names, parts = tuple("abcdefgh"), []
    for _ in range(40):
        found = columns(num_steps)
        times = np.arange(num_steps)
        validated = Filtering("a", found.nats, times, {}, found.nats.sum(1), columns=found)
        p_values, *_ = Calibration.of(SETTINGS, 7, names, [validated]).judged(columns(2000))
        parts.append([np.mean(p_values <= rate) for rate in (0.05, 0.02, 0.01, 0.001)])
    ratios = np.mean(parts, axis=0) / (0.05, 0.02, 0.01, 0.001)
    assert (ratios[:3] < most).all(), ratios
    assert ratios[3] < 2 * most, ratios  # below one in 59
    assert (ratios > 0.5).all(), ratios


def test_training_steps_make_rates_of_few_sequences_scatter_less():
    """Six sequences of 78 steps, each a little calmer or wilder, and 48 that were learned from.

    To what was learned the model is used: its surprises are a fifth smaller. Of 20 calibrations the
    rate at 0.001 is within a factor of 2 of what was asked for in nearly all, and by the six alone
    in about half; its logarithm scatters by less than half as much.
    """
    rng = np.random.default_rng(5)

    def columns(num_sequences, spread):
        parts = []
        for _ in range(num_sequences):
            own = spread * np.exp(0.12 * rng.normal(size=6))
            heavy = np.sqrt(3 / rng.chisquare(5, (78, 6)))
            values, others = own * heavy * rng.normal(size=(2, 78, 6))
            parts.append((values**2 / 2, (0.6 * values + 0.8 * others) ** 2 / 2))
        alone, given = (np.concatenate(each) for each in zip(*parts, strict=True))
        bands = np.zeros((*alone.shape, 2))
        return ColumnSurprises(alone, alone, given, bands, bands)

    def filtering(found):
        times = np.arange(len(found.nats))
        return Filtering("a", found.nats, times, {}, found.nats.sum(1), columns=found)

    names, new = tuple("abcdef"), columns(200, 1.0)
    learned = filtering(columns(48, 0.9))
    ratios = {True: [], False: []}
    for _ in range(20):
        validated = filtering(columns(6, 1.0))
        for has_more, found in ratios.items():
            more = [learned] if has_more else []
            calibration = Calibration.of(SETTINGS, 7, names, [validated], more)
            assert calibration.num_steps == 78 * (54 if has_more else 6)
            found.append(np.mean(calibration.judged(new)[0] <= 0.001) / 0.001)
    both, alone = (np.array(ratios[has_more]) for has_more in (True, False))
    assert np.mean((both > 0.5) & (both < 2.0)) >= 0.95
    assert np.mean((alone > 0.5) & (alone < 2.0)) < 0.8
    assert np.std(np.log(both)) < 0.5 * np.std(np.log(np.maximum(alone, 0.05)))


def test_a_cause_names_the_column_and_what_was_expected(rule):
    rows = np.array([[0.2, 0.1, 0.0], [6.0, 0.1, 0.0], [1.5, -1.5, 1.0], [0.1, 0.2, 9.0]])
    alarms = rule.judged(filtered(rows)).alarms
    assert alarms.flags.tolist() == [False, True, True, True]
    assert alarms.causes[0] == ""
    # 0.95 of the other column, and 1.645 times 0.31 on either side.
    assert alarms.causes[1] == "hot: 6.0, expected -0.4 to 0.6 by the other columns"
    # Neither is rare by itself; 1.5 and -1.5 do not go together.
    assert alarms.causes[2] == "hot: 1.5, expected -1.9 to -0.9 by the other columns"
    assert alarms.causes[3].startswith("on: 9, expected -2 to 2")
    assert alarms.columns.argmax(axis=1).tolist() == [0, 0, 0, 2]
    assert alarms.columns.sum(axis=1).tolist() == [0, 1, 1, 1]
    assert alarms.p_values[1] <= alarms.p_values[2] < 0.01 < alarms.p_values[0]


def test_a_cause_does_not_contradict_itself(rule):
    """A value inside of the band that is shown is against another one, or that is what is said."""
    filtering = filtered(np.array([[1.5, 1.6, 0.0]]))
    columns = filtering.columns

    def cause(value, alone, given, by_others):
        bands = [np.tile(ends, (1, 3, 1)) for ends in (alone, given)]
        of = replace(columns, band=bands[0], band_given=bands[1])
        rows = np.array([[value, 1.6, 0.0]])
        alone, given = np.array([0.3, 0.5, 0.5]), np.array([0.2 if by_others else 0.9, 0.5, 0.5])
        return rule._cause(replace(filtering, rows=rows, columns=of), 0, [0], alone, given)

    by_itself, others = [15.12, 20.58], [17.0, 20.1]
    said = "hot: 16.2, expected 15.1 to 20.6 by itself, but 17.0 to 20.1 by the other columns"
    assert cause(16.2, by_itself, others, False) == said
    assert cause(16.2, by_itself, others, True) == (
        "hot: 16.2, expected 17.0 to 20.1 by the other columns"
    )
    assert cause(20.3, others, by_itself, True) == (
        "hot: 20.3, expected 15.1 to 20.6 by the other columns, but 17.0 to 20.1 by itself"
    )
    assert cause(18.0, by_itself, others, False) == (
        "hot: 18.0, inside of the expected 15.1 to 20.6, but rarer than healthy values"
    )
    # Just outside: with digits that show it.
    assert cause(15.11, by_itself, others, False) == "hot: 15.11, expected 15.12 to 20.58"


def test_rain_is_not_expected_below_zero():
    """The bands of a family whose values are skewed, or held at a bound, lie where these can."""
    rng = np.random.default_rng(5)
    rain = np.where(rng.random(300) < 0.7, 0.0, rng.lognormal(1.0, 0.8, 300)).round(1)
    dataset = read_table({"rain": rain, "humid": np.clip(rng.normal(80, 20, 300), 0, 100)})
    assert dataset.column_families[0][1].distribution is ZeroInflated
    head = ColumnHead(2, (2,), families=dataset.family, key=jax.random.key(0))
    emission = head(jnp.zeros(2))
    keys = jax.random.split(jax.random.key(1), 500)
    draws = jax.vmap(emission.sample)(keys)[:, None]
    weights = jnp.full((1, 500, 2), 1 / 500)
    band = _bands(dataset, _weighted_bands(draws, weights))[0]
    assert (band[:, 0] >= 0.0).all()
    assert band[1, 1] <= 100.0
    values = restored(dataset, draws[:, 0])
    held = np.mean((values >= band[:, 0]) & (values <= band[:, 1]), axis=0)
    # Nine in ten, and all that is at the lowest value: that of rain is half of it.
    assert (held > 0.89).all()


def test_a_gap_is_no_alarm(rule):
    alarms = rule.judged(filtered(np.full((2, 3), np.nan))).alarms
    assert np.isnan(alarms.p_values).all()
    assert not alarms.flags.any()


def test_no_step_is_told_to_be_rarer_than_so_few_can_show(rule):
    """2,000 steps are validated; what is more surprising is still told apart by its surprise."""
    rows = np.array([[9.0, 0.1, 0.0], [90.0, 0.1, 0.0], [0.2, 0.1, 0.0]])
    found = rule.judged(filtered(rows))
    assert found.alarms.p_values[:2] == pytest.approx(1 / 200_000)
    assert found.alarms.p_values[2] > 0.1
    assert found.surprise[1] > found.surprise[0]
    # Who asks for less has alarms of a tail that is extrapolated, and no p-value above the rate.
    alarms = replace(rule, rate=1e-6).judged(filtered(rows)).alarms
    assert alarms.flags.tolist() == [True, True, False]
    assert (alarms.p_values[:2] == 1e-6).all()


def test_a_rate_that_was_never_seen_is_said(rule):
    assert rule.note is None
    few = AlarmRule(rule.calibration, 0.0001, rule.dataset)
    assert few.note.startswith("`alarm_rate` is 0.0001, less than one in the 2,000 steps")
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="`alarm_rate`"):
            require_rate(wrong)


def test_calibrations_are_kept_with_a_checksum(rule, tmp_path):
    first = rule.calibration
    assert known_calibration(tmp_path, SETTINGS, 7) is None
    keep_calibration(tmp_path, first)
    other = Calibration.from_json(first.as_json() | {"settings": Settings(1, 128, 1.0)._asdict()})
    keep_calibration(tmp_path, other)
    assert known_calibration(tmp_path, SETTINGS, 7) == first
    assert known_calibration(tmp_path, other.settings, 7) == other
    # Of what was learned since then they say nothing.
    assert known_calibration(tmp_path, SETTINGS, 8) is None
    path = tmp_path / FILE
    path.write_text(path.read_text().replace('"step": 7', '"step": 8'))
    with pytest.raises(ValueError, match=r"is damaged .*checksum.* Remove it"):
        known_calibration(tmp_path, SETTINGS, 8)


def test_too_few_steps_make_no_calibration():
    few = filtered(healthy(FEWEST_VALUES - 1, np.random.default_rng(3)))
    assert Calibration.of(SETTINGS, 7, COLUMNS, [few]) is None
    assert Calibration.of(SETTINGS, 7, COLUMNS, []) is None
