"""Transposition: the same intervals, other keys, and every note on the keyboard."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refusals import refuses
from tiny_runs import tiny
from varfilter.data.batches import Batch
from varfilter.experiments import Optimizers, Schedule
from varfilter.training import Transposition


def rolls(*notes, num_steps=3):
    """A window for each set of notes, which are held throughout."""
    xs = np.zeros((len(notes), num_steps, 88), np.float32)
    for window, each in zip(xs, notes, strict=True):
        window[:, list(each)] = 1.0
    return Batch(jnp.asarray(xs), jnp.ones((len(notes), num_steps), bool))


def test_windows_move_as_a_whole_by_every_number_of_semitones_alike():
    batch = rolls(*[(30, 37, 42)] * 900)
    moved = np.asarray(Transposition(2)(batch, jax.random.key(0)).xs)
    places = [np.flatnonzero(window[0]) for window in moved]
    assert all((window == window[0]).all() for window in moved)
    assert {tuple(np.diff(place)) for place in places} == {(7, 5)}
    counts = np.bincount([place[0] - 28 for place in places], minlength=5)
    assert len(counts) == 5
    # 180 of 900 expected of each, with a standard deviation of 12.
    assert np.all(np.abs(counts - 180) < 4 * 12)


def test_no_note_leaves_the_keyboard_and_silence_stays():
    batch = rolls((0, 87), (0, 4), (86,), ())
    for seed in range(20):
        moved = np.asarray(Transposition(6)(batch, jax.random.key(seed)).xs)
        np.testing.assert_array_equal(moved.sum((1, 2)), np.asarray(batch.xs).sum((1, 2)))
        np.testing.assert_array_equal(moved[0], batch.xs[0])
        low, high = np.flatnonzero(moved[1, 0])
        assert 0 <= low <= 6
        assert high == low + 4
        assert 80 <= np.flatnonzero(moved[2, 0])[0] <= 87


@pytest.mark.parametrize("semitones", [0, jnp.asarray(0, jnp.int32)])
def test_none_is_the_identity(semitones):
    batch = rolls((3, 50))
    after = Transposition(semitones)(batch, jax.random.key(1))
    assert jnp.array_equal(after.xs, batch.xs)


def test_a_range_must_not_be_negative():
    refuses(lambda: Transposition(-1), ValueError, "`semitones`", "-1")


def test_only_music_is_moved_to_other_keys(tmp_path):
    for medium in ("music", "sound"):
        experiment, dataset = tiny(medium, tmp_path)
        schedule = dataclasses.replace(experiment.schedule, semitones=2)
        experiment = dataclasses.replace(experiment, schedule=schedule)
        if medium == "music":
            experiment.build(dataset)
        else:
            build = functools.partial(experiment.build, dataset)
            refuses(build, ValueError, "`schedule.semitones`", "music")
    refuses(lambda: Schedule(semitones=-1), ValueError, "`schedule.semitones`", "-1")
    refuses(lambda: Optimizers(dropout=1.0), ValueError, "`dropout`", "1.0")
