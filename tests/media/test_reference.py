"""The naive references against what they say they are, counted by hand and by scipy."""

import numpy as np
import pytest
from scipy import stats

from varfilter.data import Dataset, Family, Ragged
from varfilter.distributions import Bernoulli, DiscretizedNormal, Normal
from varfilter.media.reference import last_value_reference, marginal_reference

RNG = np.random.default_rng(0)


def dataset(train, test, family, **more):
    train, test = (Ragged.of([np.asarray(xs) for xs in part]) for part in (train, test))
    return Dataset("made", train, test, test, family, **more)


def test_notes_by_their_frequency():
    train = RNG.integers(0, 2, (30, 4)).astype(np.uint8)
    test = [RNG.integers(0, 2, (length, 4)).astype(np.uint8) for length in (5, 9)]
    frequency = (train.sum(0) + 1) / 32
    # The first step of each is conditioned on; both songs have the same weight.
    expected = np.mean(
        [-stats.bernoulli(frequency).logpmf(song[1:]).sum(1).mean() for song in test]
    )
    found = marginal_reference(dataset([train], test, Family(Bernoulli)), "test")
    assert found.nats == pytest.approx(expected, rel=1e-12)


def test_numbers_by_their_mean_and_spread():
    train, test = RNG.normal(3.0, 2.0, (50, 2)), RNG.normal(3.0, 2.0, (6, 2))
    test[2, 1] = np.nan  # what is missing adds nothing
    logs = stats.norm(train.mean(0), train.std(0)).logpdf(test[1:])
    found = marginal_reference(dataset([train], [test], Family(Normal)), "valid")
    # The values went through float32.
    assert found.nats == pytest.approx(-np.nansum(logs) / 5, rel=1e-5)


def test_levels_have_probabilities_that_sum_to_one():
    """One step of each level after the same first: exp(-nats) over all of them is 1."""
    train = RNG.integers(0, 5, (40, 1)).astype(np.float32)
    family = Family(DiscretizedNormal, width=1.0, low=0.0, high=4.0)
    for reference in (marginal_reference, last_value_reference):
        scores = [
            reference(dataset([train], [[[2.0], [level]]], family), "test").nats
            for level in np.arange(5.0)
        ]
        assert np.exp(-np.array(scores)).sum() == pytest.approx(1.0, rel=1e-6)


def test_the_last_value_is_the_last_that_was_seen():
    walk = np.cumsum(RNG.normal(size=(60, 1)), axis=0)
    test = np.array([[1.0], [np.nan], [np.nan], [4.0]])
    spread = np.sqrt(np.mean(np.diff(walk, axis=0) ** 2))
    expected = -stats.norm(1.0, spread).logpdf(4.0) / 3
    found = last_value_reference(dataset([walk], [test], Family(Normal)), "test")
    assert found.nats == pytest.approx(expected, rel=1e-5)


def test_flags_stay_as_often_as_in_training():
    train = np.array([0, 0, 0, 1, 1, 1, 1, 0])[:, None].astype(np.float32)
    test = np.array([1, 1, 0])[:, None].astype(np.float32)
    stays = (5 + 1) / (7 + 2)
    found = last_value_reference(dataset([train], [test], (Family(Bernoulli),)), "test")
    assert found.nats == pytest.approx(-(np.log(stays) + np.log(1 - stays)) / 2, rel=1e-6)
