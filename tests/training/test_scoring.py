"""Sequences scored side by side have the scores of each alone, however they are laid out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from refusals import refuses
from varfilter.data import Dataset, Family, Ragged, Scaling
from varfilter.inference.gradient import descend
from varfilter.training import HeldOut, numbered, scoring, stacked, unstacked
from varfilter.training.scoring import Layout, batch_sizes, chunk_length, most_sequences
from worlds import KEY, assert_same_bits, linear_gaussian, observations

LENGTHS = (9, 2, 30, 1, 6, 14, 3)


@pytest.fixture(scope="module")
def world():
    model = linear_gaussian()
    ragged = Ragged.of([np.asarray(observations(model, n, i)) for i, n in enumerate(LENGTHS)])
    return model, Dataset("world", ragged, ragged, ragged, Family(vf.Normal), Scaling(0.0, 1.0))


def alone(model, dataset):
    """The exact filter on each sequence of two steps or more by itself, the first conditioned on.

    Negative log likelihoods, and the sums of squared errors of the predictions.
    """
    found, longest = [], max(LENGTHS) - 1
    for rows in dataset.test:
        if len(rows) > 1:
            # All of one length, so that one program is compiled.
            xs, later = dataset.observations(rows), len(rows) - 1
            padded = np.pad(xs[1:], ((0, longest - later), (0, 0)))
            mask = np.arange(longest) < later
            filtered = vf.run(vf.KalmanFilter(), model, padded, KEY, x0=xs[0], mask=mask)[1]
            error = np.asarray(filtered.prediction.mean)[:later] - xs[1:]
            found.append((-float(jnp.sum(filtered.bound)), float(np.sum(error**2))))
    return np.array(found).T


# All at once, eight chunks of the longest, of which the others leave; and two batches of three, of
# a split that is too large to be kept.
@pytest.mark.parametrize(("size", "kept"), [(None, scoring.KEPT), (3, 0)])
def test_any_layout_scores_as_each_alone(world, monkeypatch, size, kept):
    model, dataset = world
    free_energy, square_error = alone(model, dataset)
    monkeypatch.setattr(scoring, "LONGEST_CHUNK", 4)
    monkeypatch.setattr(scoring, "MOST_PROGRAMS", 2)
    monkeypatch.setattr(scoring, "KEPT", kept)
    held_out = HeldOut(dataset, split="test", batch_size=size)
    found = held_out.evaluate(vf.KalmanFilter(), model, KEY)
    assert found.numbers.tolist() == [0, 1, 2, 4, 5, 6]
    assert found.num_steps.tolist() == [8, 1, 29, 5, 13, 2]
    # Sums of at most 60 float32 numbers in another order: 60 roundings of 6e-8.
    np.testing.assert_allclose(found.free_energy, free_energy, rtol=4e-6)
    np.testing.assert_allclose(found.square_error, square_error, rtol=4e-6)
    # Fewer steps are filtered than if all were as long as the longest.
    assert held_out.padded_steps(vf.KalmanFilter()) < 6 * 32


def test_several_models_are_scored_as_each(world):
    model, dataset = world
    other = jax.tree.map(lambda leaf: 1.1 * leaf if eqx.is_inexact_array(leaf) else leaf, model)
    held_out = HeldOut(dataset, split="test")
    keys = jax.random.split(KEY, 2)
    filter = vf.KalmanFilter()
    found = held_out.evaluate_stacked(stacked([filter] * 2), stacked([model, other]), keys)
    for each, own, key in zip(found, (model, other), keys, strict=True):
        expected = held_out.evaluate(filter, own, key)
        # Products in another order: 29 steps, each some roundings of 6e-8 off.
        np.testing.assert_allclose(each.free_energy, expected.free_energy, rtol=2e-5)
        assert each.num_steps.tolist() == expected.num_steps.tolist()
    assert abs(found[0].nats - found[1].nats) > 1e-3


def test_every_step_of_every_sequence_is_in_one_phase():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 12, 64):
        counts = np.sort(rng.geometric(0.2, size))[::-1]
        sizes = batch_sizes([counts], size)
        assert sizes[0] == size
        phases = scoring._phases(counts, sizes)
        for place, count in enumerate(counts):
            covered = [c for p in phases if place < p.size for c in range(p.first, p.end)]
            assert covered[:count] == list(range(count))
            # One after another, without a gap, as long as it goes on.
        work = sum((p.end - p.first) * p.size for p in phases)
        assert counts.sum() <= work <= counts[0] * size


def test_the_number_of_steps_after_one_another_is_that_of_the_longest(world):
    _, dataset = world
    layout = Layout(dataset, "test", [0, 1, 2, 4, 5, 6], 6)
    assert len(layout.phases) == 1
    assert layout.chunk * layout.phases[0][-1].end == 29
    # Chunks are as long as each other, and no longer than they may be.
    assert [chunk_length(n) for n in (1, 64, 65, 70, 2100)] == [1, 64, 33, 35, 64]
    # Many paths leave room for few sequences, and large frames too.
    many = vf.ParticleFilter(vf.Prior(), 1 << 12)
    assert most_sequences(many, 1, 64) == 4
    assert most_sequences(vf.KalmanFilter(), 1 << 20, 64) == 1
    assert most_sequences(vf.KalmanFilter(), 88, 64, members=8) == 5957 // 8


class TestStacking:
    """Trees of one structure as one, and back."""

    def test_and_back(self):
        trees = [(KEY, jnp.arange(3) + n, {"rate": 0.5 + n, "name": "a"}) for n in range(3)]
        whole = stacked(trees)
        assert whole[1].shape == (3, 3)
        assert whole[2]["rate"].tolist() == [0.5, 1.5, 2.5]
        assert whole[2]["name"] == "a"
        for tree, again in zip(trees, unstacked(whole, 3), strict=True):
            assert_same_bits(again[1], tree[1])
            assert float(again[2]["rate"]) == tree[2]["rate"]

    def test_an_optimizer_learns_as_without_its_numbers_outside(self):
        parameters = {"w": jnp.array([1.0, -2.0, 3.0])}
        gradient = {"w": jnp.array([0.3, 1e-3, -5.0])}
        plain, outside = (
            optax.adamw(1e-2, weight_decay=0.1),
            numbered(optax.adamw, 1e-2, weight_decay=0.1),
        )
        states = [each.init(parameters) for each in (plain, outside)]
        assert_same_bits(*states)
        for _ in range(3):
            steps = []
            for place, each in enumerate((plain, outside)):
                step, states[place] = descend(each, gradient, states[place], parameters)
                steps.append(step)
            # A number as float32 is the number that float32 arithmetic made of it.
            np.testing.assert_allclose(steps[0]["w"], steps[1]["w"], rtol=1e-6)

    def test_refusals(self):
        def call(*trees):
            return lambda: stacked(trees)

        refuses(call(), ValueError, "`trees`", "none")
        refuses(call((1.0, None), (1.0, 2.0)), ValueError, "`trees`", "number 1", "structure")
        refuses(call([jnp.ones(2)], [jnp.ones(3)]), ValueError, "`[0]`", "[2]", "[3]")
        refuses(
            call([optax.adam(1.0).update], [optax.adam(2.0).update]),
            ValueError, "another program", "numbered(optax.adam, 1e-3)",
        )  # fmt: skip
