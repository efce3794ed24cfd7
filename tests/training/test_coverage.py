"""Forecast bands hold what they promise where the model is the truth, and are counted rightly."""

import jax
import numpy as np
import pytest

import varfilter as vf
from refusals import refuses
from varfilter.data import Dataset, Family, Ragged
from varfilter.training.evaluation import forecast_coverage
from worlds import KEY, linear_gaussian, observations

MODEL = linear_gaussian()


def dataset(sequences):
    ragged = Ragged.of(sequences)
    return Dataset("world", ragged, ragged, ragged, Family(vf.Normal))


def test_bands_of_the_true_model_hold_nine_points_in_ten():
    truth = dataset([np.asarray(observations(MODEL, 60, seed)) for seed in range(32)])
    found = forecast_coverage(vf.KalmanFilter(), MODEL, truth, KEY, horizon=3, num_samples=400)
    assert found.count.shape == (3, *truth.observation_shape)
    # 14 places a sequence; at most 448 independent points an element and step: a standard error
    # of 0.014 for one of them, and of 0.005 for all together if their errors were independent.
    assert found.share == pytest.approx(0.9, abs=0.02)
    assert np.all(np.abs(found.by_step - 0.9) < 0.03)
    assert found.by_element.shape == truth.observation_shape


def test_only_what_was_seen_is_counted():
    xs = np.asarray(observations(MODEL, 12, 0)).copy()
    xs[6:, 0] = np.nan
    found = forecast_coverage(
        vf.KalmanFilter(), MODEL, dataset([xs]), KEY, horizon=2, every=5, num_samples=8
    )
    # From step 5: steps 6 and 7 lie ahead, of which the first element is missing.
    assert found.count[:, 0].tolist() == [0, 0]
    assert found.count[:, 1:].all()
    assert np.isnan(found.by_element[0])
    short = forecast_coverage(
        vf.KalmanFilter(), MODEL, dataset([xs[:4]]), KEY, horizon=9, num_samples=8
    )
    assert short.count.sum() == 0


def test_bad_arguments_are_refused():
    truth = dataset([np.asarray(observations(MODEL, 12, 0))])
    refuses(
        lambda: forecast_coverage(vf.KalmanFilter(), MODEL, truth, jax.random.key(0), horizon=0),
        ValueError, "horizon",
    )  # fmt: skip
