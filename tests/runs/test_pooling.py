"""Pools of forecasts: weights where the best ones are known, and what is said of values."""

import csv
import dataclasses
import json
import shutil
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tiny_runs import keep_untrained, tiny
from varfilter.data.continued import Continued
from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.distributions import Bernoulli, Categorical, Normal
from varfilter.media import linear, new_sequences
from varfilter.media.gaussians import Gaussians
from varfilter.media.linear import LinearReference, linear_start
from varfilter.media.reference import level_groups
from varfilter.prediction import predictive_quantiles
from varfilter.runs import Run, apply_run, forecast_data, pool_futures, pooling
from varfilter.runs.comparison import compare_run
from varfilter.runs.forecasting import (
    fit_pool,
    known_pool,
    said_lately,
    validated_horizons,
    with_pool,
)
from varfilter.runs.live import LiveFilter
from varfilter.runs.pool_futures import pooled_forecast
from varfilter.runs.pool_weights import START, STRENGTH, start_weights
from varfilter.runs.pooling import (
    QUANTILES,
    ForecastPool,
    Lately,
    PoolWeights,
    pooled_predictions,
)
from varfilter.simulation import Forecast
from varfilter.training.checkpoints import Checkpoint, save_checkpoint
from varfilter.training.predictive_draws import WIDTHS, Drawn
from varfilter.training.predictive_scores import Weighted

RNG = np.random.default_rng(0)
PART = Ragged.of([np.zeros((3, 2), np.float32)])
TWO = Dataset(
    "made", PART, PART, PART, (Family(Normal), Family(Bernoulli)), columns=("level", "valve")
)


def test_what_references_said_lately_is_where_their_weights_begin():
    own, reference = said(4)
    own = own._replace(nats=np.full_like(own.nats, 1.0))
    xs = np.stack([RNG.normal(3.0, 1.0, 400), RNG.random(400) < 0.5], axis=1)
    near = Gaussians.of(np.tile([3.0, 0.5], (400, 1)), np.ones(2))
    far = Gaussians.of(np.tile([0.0, 0.5], (400, 1)), np.ones(2))
    said_of = {"far": {1: far}, "near": {1: near}}
    same = {name: {1: reference} for name in said_of}
    for count, level in ((1.0, 0.95), (0.0, 0.5)):
        lately = Lately({1: xs}, {1: np.full(400, count)}, said_of)
        pool = ForecastPool.of(TWO, {1: own}, same, 1, lately)
        weights = pool.at(TWO, 1).of_densities[:, len(WIDTHS) :]
        shares = weights / weights.sum(axis=1, keepdims=True)
        assert shares[0, 1] == pytest.approx(level, abs=0.05)
        # Of the valve they said the same.
        assert shares[1, 1] == pytest.approx(0.5, abs=0.02)


def test_the_last_training_rows_count_the_less_the_longer_ago():
    xs = np.zeros((400, 2), np.float32)
    xs[300:] = np.nan  # what is to be predicted is not looked at
    sequence = Continued("one", xs, None, None, 300)
    asked = []

    def predictor(sequence, places, horizon):
        asked.append(sequence)
        shape = (len(places), horizon, 2)
        return Gaussians.of(np.zeros(shape), np.ones(2))

    found = said_lately({"one": predictor}, [sequence], (1, 8), 2)
    assert all(len(each) == 300 for each in asked)
    # Of 100 rows to be predicted 250 before count, and half as much after 50 each.
    assert len(found.xs[1]) == len(found.counts[1]) == 250
    assert np.isfinite(found.xs[1]).all()
    assert found.counts[1][-1] == pytest.approx(0.5 ** (1 / 50))
    assert found.counts[1][-51] == pytest.approx(0.5 ** (51 / 50))
    assert found.counts[8].max() <= 2 / 8
    assert len(found.counts[8]) == len(found.references["one"][8].centre) == 122
    # Sequences without a past, or with too short a one, tell nothing.
    begun = Continued("two", xs, None, None, 1)
    assert said_lately({"one": predictor}, [begun], (1, 8), 2) is None


def test_draws_that_weigh_the_same_are_draws_as_ever():
    draws = RNG.normal(size=(40, 7, 2)).astype(np.float32)
    xs = RNG.normal(size=(7, 2))
    own = Weighted.of([draws], [np.ones((7, 2))])
    levels = (0.05, 0.3, 0.95)
    expected = predictive_quantiles(jnp.asarray(draws), levels)
    np.testing.assert_allclose(own.quantiles(levels), expected, atol=1e-5)  # in float32
    pairs = np.abs(draws[:, None] - draws[None]).sum(axis=(0, 1)) / (40 * 39)
    crps = np.abs(draws - xs).mean(axis=0) - 0.5 * pairs
    np.testing.assert_allclose(own.crps(xs), crps, atol=1e-5)
    # What weighs nothing is not there.
    more = [draws, RNG.normal(50, 1, (40, 7, 2))]
    nothing = np.zeros((7, 2))
    both = Weighted.of(more, [np.ones((7, 2)), nothing], [more[1][:9]], [nothing])
    np.testing.assert_allclose(both.crps(xs), crps, atol=1e-5)
    np.testing.assert_allclose(both.quantiles(levels), expected, atol=1e-5)


def gaussian_crps(x, mean, spread):
    """The closed form of N(mean, spread^2)."""
    z = (x - mean) / spread
    return spread * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)


def test_quantiles_of_what_is_known_are_no_draws():
    """Of a Gaussian, and of a mixture of two, the closed forms; nothing is left to chance."""
    levels = np.array(QUANTILES)
    xs = np.array([[-2.0, 0.1], [0.7, 3.0]])
    first, second = (
        np.broadcast_to(stats.norm(m, s).ppf(levels)[:, None, None], (len(levels), 2, 2))
        for m, s in ((0.0, 1.0), (2.0, 0.5))
    )
    nothing = [np.zeros((3, 2, 2))], [np.zeros((2, 2))]
    alone = Weighted.of(*nothing, [first], [np.ones((2, 2))])
    # Beyond the last of 99 points, at 2.57, the rest of the tail is held: that costs 0.0014 at 3.
    # Were the points draws, these scores would be 0.0057 less.
    np.testing.assert_allclose(alone.crps(xs), gaussian_crps(xs, 0.0, 1.0), atol=2e-3)
    np.testing.assert_allclose(alone.quantiles((0.05, 0.5))[:, 0, 0], [-1.645, 0.0], atol=2e-3)
    w = 0.3
    mixed = Weighted.of(*nothing, [first, second], [np.full((2, 2), w), np.full((2, 2), 1 - w)])

    def apart(mean, spread):
        """E|Y| of Y ~ N(mean, spread^2)."""
        return 2 * spread * stats.norm.pdf(mean / spread) + mean * (
            2 * stats.norm.cdf(mean / spread) - 1
        )

    away = w * apart(xs - 0.0, 1.0) + (1 - w) * apart(xs - 2.0, 0.5)
    pairs = (w**2 * apart(0.0, 2**0.5) + (1 - w) ** 2 * apart(0.0, 0.5**0.5)
             + 2 * w * (1 - w) * apart(2.0, 1.25**0.5))  # fmt: skip
    np.testing.assert_allclose(mixed.crps(xs), away - 0.5 * pairs, atol=2e-3)


def test_few_draws_beside_what_is_known_have_no_worse_a_score_than_many():
    """Fair: its mean over all that may be drawn does not depend on their number, by any width."""
    known = stats.norm(1.0, 1.0).ppf(np.array(QUANTILES))[:, None, None]
    found = []
    for num in (4, 400):
        draws = RNG.normal(size=(num, 80_000 // num, 1))
        shape = draws.shape[1:]
        mixture = Weighted.of(
            [draws, 2.0 * draws], [np.full(shape, 0.3), np.full(shape, 0.3)],
            [np.broadcast_to(known, (len(known), *shape))], [np.full(shape, 0.4)],
        )  # fmt: skip
        found.append(mixture.crps(np.full(shape, 0.5)).mean())
    # A score of four draws has a spread of 0.3, its mean over 20,000 one of 0.002.
    assert found[0] == pytest.approx(found[1], abs=5 * 0.003)


ONE = WIDTHS.index(1.0)
NAMES = (*(f"model x {width:g}" for width in WIDTHS), "other")


def weigh(own, other):
    """The weights of a model of the width that it has, and of a reference."""
    weights = np.zeros(len(WIDTHS) + 1)
    weights[ONE], weights[-1] = own, other
    return weights


def said(num_values=300):
    """Of a level and a valve: draws of N(1, 1) and of p = 0.2, and a reference N(0, 2), 0.6."""
    xs = np.stack([RNG.normal(0.3, 1.2, num_values), RNG.random(num_values) < 0.4], axis=1)
    draws = np.stack(
        [RNG.normal(1, 1, (num_values, 400)), RNG.random((num_values, 400)) < 0.2], axis=2
    )
    mean = np.tile([1.0, 0.2], (num_values, 1))
    bernoulli = np.where(xs[:, 1] > 0.5, -np.log(0.2), -np.log(0.8))
    nats = np.full((num_values, len(WIDTHS), 2), 7.0)  # a valve has one width, and no others
    for i, width in enumerate(WIDTHS):
        nats[:, i, 0] = -stats.norm(1, width).logpdf(xs[:, 0])
    nats[:, ONE, 1] = bernoulli
    reference = Gaussians.of(np.tile([0.0, 0.6], (num_values, 1)), np.array([2.0, 1.0]))
    return Drawn(xs, mean, nats, draws), reference


def test_a_pool_has_the_density_and_the_moments_of_the_mixture():
    own, reference = said()
    weights = np.stack([weigh(0.7, 0.3), weigh(0.4, 0.6)])
    both = PoolWeights(weights, weights[::-1])
    found = pooled_predictions(TWO, both, own, [reference])
    x, valve = own.xs.T
    density = 0.7 * stats.norm(1, 1).pdf(x) + 0.3 * stats.norm(0, 2).pdf(x)
    np.testing.assert_allclose(found.nats[:, 0], -np.log(density), rtol=1e-9)
    chance = 0.4 * 0.2 + 0.6 * 0.6
    chances = np.where(valve > 0.5, chance, 1 - chance)
    np.testing.assert_allclose(found.nats[:, 1], -np.log(chances), rtol=1e-9)
    # The means have the weights of means: 0.4 of 1 and 0.6 of 0; 0.7 of 0.2 and 0.3 of 0.6.
    np.testing.assert_allclose(found.mean[:, 1], 0.32, rtol=1e-9)
    # The first quartile, by which a mean is held, is next to the 0 that the reference expects.
    np.testing.assert_allclose(found.mean[:, 0], 0.4, atol=0.06)
    # The edges of the bands are those of the mixture, up to what 400 draws tell.
    low, high = found.quantiles[0, :, 0].mean(), found.quantiles[3, :, 0].mean()
    for edge, level in ((low, 0.05), (high, 0.95)):
        below = 0.7 * stats.norm(1, 1).cdf(edge) + 0.3 * stats.norm(0, 2).cdf(edge)
        assert below == pytest.approx(level, abs=0.01)
    assert np.isnan(found.quantiles[:, :, 1]).all()
    # Never worse than any of them by more than what it lacks in weight.
    assert (found.nats[:, 0] <= reference.nats(TWO, own.xs)[:, 0] - np.log(0.3) + 1e-9).all()
    # What was not observed has no score.
    hidden = own._replace(xs=np.where([True, False], np.nan, own.xs))
    again = pooled_predictions(TWO, both, hidden, [reference])
    assert np.isnan(again.nats[:, 0]).all()
    np.testing.assert_array_equal(again.nats[:, 1], found.nats[:, 1])


def test_the_better_one_has_the_larger_weight_and_few_values_say_little():
    own, reference = said(4000)
    many = ForecastPool.of(TWO, {1: own}, {"other": {1: reference}}, every=1)
    assert many.predictors[ONE] == "model x 1"
    assert many.predictors[-1] == "other"
    # N(0.3, 1.2) lies between N(1, 1) and N(0, 2): both are needed, and of the valve p = 0.4 is
    # halfway from 0.2 to 0.6. By the narrowest model most values would be next to impossible.
    level, valve = many.at(TWO, 1).of_densities
    assert 0.2 < level[: len(WIDTHS)].sum() < 0.95
    assert level[0] < 0.01
    np.testing.assert_allclose(valve, weigh(valve[ONE], valve[-1]))
    assert valve[ONE] == pytest.approx(0.5, abs=0.1)
    # A model of a spread that is four times too small is taken four times as wide.
    narrow = own._replace(draws=own.xs[:, None], nats=own.nats.copy())
    for i, width in enumerate(WIDTHS):
        narrow.nats[:, i, 0] = -stats.norm(0.3, 0.3 * width).logpdf(own.xs[:, 0])
    found = ForecastPool.of(TWO, {1: narrow}, {"other": {1: reference}}, every=1)
    assert found.at(TWO, 1).of_densities[0, -2] > 0.9
    few = ForecastPool.of(TWO, {16: own.part(slice(3))}, {"other": {16: Gaussians(
        *(each[:3] for each in reference[:2]), reference.is_log)}}, every=1)  # fmt: skip
    # Three values whose ways overlap count for three sixteenths; further ahead than one step the
    # model and its reference begin with as much.
    own_weights = few.at(TWO, 16).of_densities[:, : len(WIDTHS)].sum(axis=1)
    assert own_weights == pytest.approx(0.5, abs=0.2 / STRENGTH)
    assert start_weights(1, 3)[: len(WIDTHS)].sum() == pytest.approx(START)
    np.testing.assert_allclose(start_weights(2, 3)[len(WIDTHS) :], 0.25)
    again = ForecastPool.from_json(json.loads(json.dumps(many.as_json())))
    np.testing.assert_array_equal(again.weights, many.weights)
    np.testing.assert_array_equal(again.of_means, many.of_means)
    # Records of before means had weights of their own have those of the densities.
    old = many.as_json()
    del old["of_means"]
    assert ForecastPool.from_json(old).at(TWO, 1).of_means[0] == pytest.approx(many.weights[0, 0])
    assert again.predictors == many.predictors


def test_between_horizons_weights_lie_on_a_line_and_then_they_stay():
    weights = np.array([[[0.9, 0.1]] * 2, [[0.5, 0.5]] * 2])
    pool = ForecastPool(("one", "other"), (1, 4), weights, 10)
    for horizon, expected in ((1, 0.9), (2, 0.7), (4, 0.5), (50, 0.5)):
        np.testing.assert_allclose(pool.at(TWO, horizon).of_densities[:, 0], expected)
    assert validated_horizons(1) == (1,)
    assert validated_horizons(13) == (1, 2, 4, 8)
    assert validated_horizons(5000)[-1] == 64


def test_futures_of_a_pool_are_those_of_its_parts_by_their_weights():
    samples = jnp.asarray(RNG.normal(size=(500, 3, 2)), jnp.float32)
    own = Forecast(samples, samples.mean(axis=0), jnp.zeros((2, 3, 2)), (0.05, 0.95))
    reference = Gaussians.of(np.full((3, 2), 100.0), np.array([1.0, 1.0]))
    only = Dataset("made", PART, PART, PART, (Family(Normal),) * 2, columns=("a", "b"))
    pool = ForecastPool(NAMES, (1,), np.stack([weigh(0.8, 0.2)] * 2)[None], 10)
    found = pooled_forecast(only, pool, own, [reference])
    is_other = np.asarray(found.samples) > 50
    np.testing.assert_allclose(is_other.mean(axis=0), 0.2)
    # A future is one or the other throughout, and at one level of it.
    assert (is_other == is_other[:, :1]).all()
    assert np.ptp(found.samples[is_other.all(axis=(1, 2))], axis=1).max() < 1e-9
    # What the other one expects is held at the third quartile of the pool: at 15 of 16 of the
    # model's own draws.
    edge = np.quantile(samples, 0.75 / 0.8, axis=0)
    np.testing.assert_allclose(found.mean, 0.8 * own.mean + 0.2 * edge, atol=0.02)
    # A fifth of it lies near 100: there the 95th percentile is, at 15 twentieths of that fifth.
    assert found.quantiles[1] == pytest.approx(stats.norm(100, 1).ppf(0.75), abs=0.05)
    alone = ForecastPool(NAMES, (1,), np.stack([weigh(1.0, 0.0)] * 2)[None], 10)
    np.testing.assert_array_equal(pooled_forecast(only, alone, own, [reference]).samples, samples)
    # Twice as wide about the median, and no further off.
    twice = np.roll(weigh(1.0, 0.0), 1)[None, None].repeat(2, axis=1)
    wide = pooled_forecast(only, ForecastPool(NAMES, (1,), twice, 10), own, [reference])
    np.testing.assert_allclose(np.std(wide.samples, 0), 2 * np.std(samples, 0), rtol=1e-5)
    np.testing.assert_allclose(np.median(wide.samples, 0), np.median(samples, 0), atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("pool")
    own, dataset = tiny("table", place)
    keep_untrained(Run.begin(place / "run", own, dataset))
    return place


FEW = {"num_particles": 4, "num_samples": 16}


def test_forecasts_are_pooled_with_what_the_folder_has(folder, tmp_path, monkeypatch):
    run, path = Run.load(folder / "run"), folder / "readings.csv"
    applied = apply_run(run, **FEW)
    # Within all of the pool: nothing that a predictor expects is held back.
    monkeypatch.setattr(pool_futures, "QUARTILES", (0.0, 1.0))
    assert known_pool(run, applied) is None
    alone = list(forecast_data(run, path, 3, pool=False, **FEW))
    pooled = list(forecast_data(run, path, 3, **FEW))
    own = with_pool(run, applied).pool
    assert own.pool.predictors[len(WIDTHS)] == "last value"
    # The mean of the first step is that of all of them, by their weights.
    sequence = next(new_sequences(run.template, run.experiment.data, path))
    history = Continued("", sequence.xs, sequence.us, None, len(sequence.xs))
    place, template = np.array([len(history)]), run.template
    means = [each(history, place, 1).mean(template)[0, 0] for each in own.predictors]
    column = template.columns[0]

    def scaled(row, part):
        return template.scaling(np.array([[row[f"{column}_{part}"], 0.5]]))[0, 0]

    model, centre = scaled(alone[0], "mean"), scaled(alone[0], "q50")
    told = [centre + width * (model - centre) for width in WIDTHS] + [each[0] for each in means]
    mean = np.sum(own.pool.at(template, 1).of_means[0] * told)
    assert scaled(pooled[0], "mean") == pytest.approx(mean, rel=1e-3, abs=1e-4)
    assert means[0][0] == pytest.approx(sequence.xs[-1, 0], abs=1e-5)

    # The same elsewhere, without the training data, and of live lines.
    moved = Run.load(shutil.copytree(folder / "run", tmp_path / "moved"))
    monkeypatch.setattr(Run, "dataset", property(lambda self: pytest.fail("there are no rows")))
    assert list(forecast_data(moved, path, 3, **FEW)) == pooled
    again = apply_run(moved, num_particles=4, num_samples=16, levels=(0.05, 0.5, 0.95))
    live = LiveFilter(with_pool(moved, again), pytest.fail)
    with path.open() as table:
        lines = [json.dumps(line) for line in csv.DictReader(table)]
    rows = sorted(live.forecast_rows(lines, 3), key=lambda row: (row["pump"], row["step"]))
    np.testing.assert_equal(rows, sorted(pooled, key=lambda row: (row["pump"], row["step"])))


def test_a_pool_is_scored_where_its_weights_were_not_found(folder):
    run = Run.load(folder / "run")
    assert "pooled" not in compare_run(run, split="valid", num_particles=4)["nats"]
    found = compare_run(run, split="test", horizon=4, num_particles=4)
    assert set(found["nats"]) == {"model", "pooled", "last value", "linear model"}
    assert found["horizons"] == [1, 4]
    # No weight of a reference starts below a ninth, and each has few values against it.
    for horizon, nats in found["nats"]["pooled"].items():
        assert nats < min(each[horizon] for each in found["nats"].values()) + 2 * np.log(9)


def test_without_its_linear_model_a_pool_is_found_again_or_goes_on(folder, tmp_path, monkeypatch):
    run = Run.load(shutil.copytree(folder / "run", tmp_path / "run"))
    path, applied = run.folder / "linear.safetensors", apply_run(run, **FEW)
    whole = with_pool(run, applied, run.dataset).pool
    learned = path.read_bytes()
    # Another one than the weights were found with, one that is damaged, and none.
    other = LinearReference(linear_start(run.dataset), run.template)
    assert other.sha256 != whole.predictors[-1].sha256
    damages = {
        "another learning": lambda: save_checkpoint(path, Checkpoint(other.model, 1, {})),
        "cannot be read": lambda: path.write_bytes(learned[:-9]),
        "is not there": path.unlink,
    }

    def no_rows(self):
        raise FileNotFoundError("There is no file 'readings.csv'. Give another.")

    for what, damage in damages.items():
        damage()
        with monkeypatch.context() as patch:
            patch.setattr(Run, "dataset", property(no_rows))
            with pytest.warns(UserWarning, match=f"linear model: .*{what}.*evaluate.*no file"):
                left = with_pool(run, applied).pool
        assert left.pool.predictors == whole.pool.predictors[:-1]
        assert len(left.predictors) == len(whole.predictors) - 1
        np.testing.assert_allclose(left.pool.weights.sum(axis=-1), 1.0)
        others = 1.0 - whole.pool.weights[..., -1:]
        np.testing.assert_allclose(left.pool.weights * others, whole.pool.weights[..., :-1])
        path.write_bytes(learned)
    # With the rows it is learned again, and the same.
    path.unlink()
    again = with_pool(run, applied, run.dataset).pool
    assert not again.lost
    assert again.predictors[-1].sha256 == whole.predictors[-1].sha256
    assert path.is_file()


def test_who_has_no_alarms_may_have_references(folder, monkeypatch):
    run = Run.load(folder / "run")
    monkeypatch.setattr(type(run.medium), "has_alarms", False)
    assert with_pool(run, apply_run(run, **FEW), run.dataset).pool is not None
    monkeypatch.setattr(type(run.medium), "has_column_references", False)
    assert with_pool(run, apply_run(run, **FEW), run.dataset).pool is None


def test_a_folder_that_cannot_be_written_to_has_forecasts_all_the_same(
    folder, tmp_path, monkeypatch
):
    place = shutil.copytree(folder / "run", tmp_path / "run")
    for name in ("pool.json", "linear.safetensors"):
        (place / name).unlink(missing_ok=True)

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(linear, "save_checkpoint", refused)
    monkeypatch.setattr("varfilter.runs.folder.write_whole", refused)
    run = Run.load(place)
    found = with_pool(run, apply_run(run, **FEW), run.dataset).pool
    assert found.pool.predictors[-1] == "linear model"
    assert not list(place.glob("pool.json*")) + list(place.glob("linear*"))


def test_futures_of_levels_have_one_of_them_and_probabilities_of_one_in_all():
    part = Ragged.of([np.zeros((3, 3), np.float32)])
    families = (Family(Categorical, group="state"),) * 3
    dataset = Dataset("made", part, part, part, families, columns=("s=a", "s=b", "s=c"))
    assert [len(each) for each in level_groups(dataset)] == [3]
    samples = jnp.asarray(np.eye(3)[RNG.choice(3, (400, 5), p=[0.6, 0.3, 0.1])], jnp.float32)
    own = Forecast(samples, samples.mean(axis=0), jnp.zeros((1, 5, 3)), (0.5,))
    reference = Gaussians.of(np.tile([0.9, 0.9, 0.2], (5, 1)), np.ones(3)).summing_to_one(
        [[0, 1, 2]]
    )
    pool = ForecastPool(NAMES, (1,), np.stack([weigh(0.5, 0.5)])[None], 10)
    found = pooled_forecast(dataset, pool, own, [reference])
    np.testing.assert_array_equal(np.sum(found.samples, axis=-1), 1.0)
    np.testing.assert_allclose(np.sum(found.mean, axis=-1), 1.0, rtol=1e-6)
    # Half of the futures are those of 0.45, 0.45 and 0.1; of 400, a share is off by 0.025.
    np.testing.assert_allclose(found.samples.mean(axis=0), found.mean, atol=5 * 0.025)


def test_a_pool_of_a_long_forecast_is_made_in_parts(monkeypatch):
    """Nothing of it depends on how much is in memory at once, and that is little."""
    rng = np.random.default_rng(0)
    num_columns, horizon = 6, 300
    part = Ragged.of([np.zeros((3, num_columns), np.float32)])
    families = (Family(Normal),) * 4 + (Family(Bernoulli),) * 2
    dataset = Dataset("made", part, part, part, families, columns=tuple("abcdef"))
    samples = rng.normal(size=(64, horizon, num_columns)).astype(np.float32)
    samples[..., 4:] = samples[..., 4:] > 0
    own = Forecast(
        jnp.asarray(samples), jnp.asarray(samples.mean(axis=0)),
        jnp.zeros((2, horizon, num_columns)), (0.05, 0.95),
    )  # fmt: skip
    centre = rng.uniform(0.2, 0.8, (horizon, num_columns))
    reference = Gaussians.of(centre, np.ones(num_columns))
    start = np.append(0.6 * np.array([0.1, 0.1, 0.6, 0.1, 0.1]), 0.4)
    weights = np.stack([start] * 4 + [weigh(0.6, 0.4)] * 2)[None]
    pool = ForecastPool(NAMES, (1,), weights, 10)
    found = []
    for at_once in (1 << 22, 1 << 15):
        monkeypatch.setattr(pooling, "AT_ONCE", at_once)
        tracemalloc.start()
        found.append(pooled_forecast(dataset, pool, own, [reference]))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    for one, other in zip(*(jax.tree.leaves(each) for each in found), strict=True):
        np.testing.assert_array_equal(one, other)
    # As much as the futures themselves a few times over, and not 5 widths and 99 quantiles each.
    assert peak < 10 * samples.nbytes


def test_a_validation_part_that_is_too_short_weighs_nothing(folder):
    run = Run.load(folder / "run")
    dataset = run.dataset
    short = dataclasses.replace(
        dataset, valid=Ragged.of([dataset.valid[0][:1]]), names={}, times={}
    )
    applied = apply_run(run, num_particles=5, num_samples=16)  # of which the folder has no pool
    assert fit_pool(run, applied, short) is None
    with pytest.warns(UserWarning, match=r"model's alone.* It has too few steps\."):
        assert with_pool(run, applied, short).pool is None
    bad = Run.load(folder / "run")
    path = bad.folder / "pool.json"
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"weights", b"wights"))
    with pytest.raises(ValueError, match="is damaged"):
        known_pool(bad, apply_run(bad, **FEW))
    path.write_bytes(kept)
