"""Training goes on to the bit where it stopped, whatever stopped it, and evaluation adds up."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import save_file

import varfilter as vf
from refusals import refuses
from varfilter.data import Dataset, Family, Ragged, RandomWindows, Scaling
from varfilter.training import fitting
from varfilter.training.checkpoints import (
    Checkpoint,
    keep_checkpoint,
    kept_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    read_manifest,
    save_checkpoint,
)
from varfilter.training.evaluation import evaluate
from varfilter.training.fitting import Annealing, fit
from worlds import KEY, assert_same_bits, deep_markov, linear_gaussian, observations

pytestmark = pytest.mark.usefixtures("as_users_run_it")

LENGTHS = (9, 4, 14, 1, 6, 30)


def dataset(model=None, lengths=LENGTHS):
    """Sequences of a model's own, kept in units of which a hundred are one of the model's."""
    model = deep_markov() if model is None else model
    xs = [100.0 * np.asarray(observations(model, n, i)) for i, n in enumerate(lengths)]
    ragged = Ragged.of(xs)
    return Dataset("world", ragged, ragged, ragged, Family(vf.Normal), Scaling(0.0, 100.0))


@functools.cache
def windows():
    """Made when they are first asked for: every worker imports this file."""
    return RandomWindows(dataset(), 4, 3)


@functools.cache
def evaluated():
    """(model, data, filter): what the exact filter says of five short sequences."""
    model = linear_gaussian()
    return model, dataset(model, (8, 4, 8, 1, 2)), vf.KalmanFilter()


def learner(**options):
    adam = optax.adam(1e-2)
    return vf.TimeParallel(theta=adam, phi=adam, **options)


LEARNER = learner()


def begun(learner):
    inference = vf.Iterative(deep_markov(), hidden_size=8, key=jax.random.key(5))
    return learner.init(deep_markov(), vf.VariationalFilter(inference))


def fitted(state=None, source=None, num_updates=7, **options):
    """(all learned, the free energies of its updates)."""
    state = begun(LEARNER) if state is None else state
    source = windows() if source is None else source
    free_energies = []
    for progress in fit(LEARNER, state, source, KEY, num_updates=num_updates, **options):
        state = progress.state
        free_energies += progress.metrics.free_energy.tolist()
    return state, free_energies


@pytest.fixture(scope="module")
def unbroken():
    return fitted(updates_per_dispatch=3)


def test_a_checkpoint_resumes_to_the_bit(unbroken, tmp_path):
    learned, free_energies = unbroken
    assert len(free_energies) == 7
    # Stopped in the middle of a dispatch, and of another; and with one update a dispatch, which is
    # the same program, so that how long they take has no influence on the numbers.
    learning, first = fitted(num_updates=4, updates_per_dispatch=3)
    save_checkpoint(tmp_path / "a", Checkpoint(learning, 4, {}))
    learning = load_checkpoint(tmp_path / "a", begun(LEARNER)).state
    learning, second = fitted(learning, updates_per_dispatch=3, seconds_per_dispatch=0.0)
    assert first + second == free_energies
    assert_same_bits(learning, learned)


def test_as_many_updates_a_dispatch_as_take_the_time(monkeypatch):
    """By a clock on which an update takes a tenth of a second, and compiling 100 s."""
    now = [0.0]
    monkeypatch.setattr(fitting, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    pace = fitting._Pace(most=50, seconds=1.0, together=False)
    counts, first = [], 7
    for seconds in [100.1] + [None] * 5 + [8.0, 0.5, 0.1, 0.1]:
        count = pace.end(first) - first
        with pace.timed(count):
            now[0] += 0.1 * count if seconds is None else seconds
        counts.append(count)
        first += count
    # Twice as many each time, up to a second; fewer after one that took eight.
    assert counts == [1, 1, 2, 4, 8, 8, 8, 1, 2, 4]
    assert pace.end(first) - first == 8
    grid = fitting._Pace(most=50, seconds=None, together=False)
    assert [grid.end(first) for first in (0, 49, 50, 120)] == [50, 50, 100, 150]


def test_how_updates_are_dispatched_changes_nothing(unbroken):
    learned, free_energies = unbroken
    on_host = RandomWindows(dataset(), 4, 3, on_device=False)
    other, others = fitted(source=on_host, updates_per_dispatch=2)
    # Programs of another shape round otherwise: 1e-7 a step, which seven updates magnify.
    np.testing.assert_allclose(others, free_energies, rtol=1e-4)
    models = (eqx.filter(learning.model, eqx.is_array) for learning in (other, learned))
    for a, b in zip(*map(jax.tree.leaves, models), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_fit_learns_and_can_be_left():
    learning, first = begun(LEARNER), None
    options = {"num_updates": 10**6, "updates_per_dispatch": 3}  # a program of the tests above
    for progress in fit(LEARNER, learning, windows(), KEY, **options):
        mean = float(jnp.mean(progress.metrics.free_energy))
        first = mean if first is None else first
        if progress.num_updates >= 150:
            break
    assert progress.num_updates == 150
    # q begins at the prior, so that there is no bad start to be made good.
    assert mean < first - 0.2


def test_annealing_by_hand():
    squared, linear = Annealing(4, 10), Annealing(4, 10, power=1.0)
    updates = jnp.array([0, 9, 10, 25, 39, 40, 1000])
    np.testing.assert_allclose(jax.vmap(linear)(updates), [0, 0, 0.25, 0.5, 0.75, 1, 1])
    np.testing.assert_allclose(jax.vmap(squared)(updates), [0, 0, 1 / 16, 0.25, 9 / 16, 1, 1])
    np.testing.assert_allclose(jax.vmap(Annealing())(updates), np.ones(7))


class TestCheckpoints:
    """Files that are read back to the bit, or refused for the reason that is said."""

    state = (KEY, jnp.arange(3), {"a": np.float32(2.5) * np.ones((2, 2), np.float32)}, "fixed")
    like = (jax.random.key(0), jnp.zeros(3, jnp.int32), {"a": jnp.zeros((2, 2))}, "fixed")

    def kept(self, folder, step, **options):
        manifest = {"step": step, "data": "äöü"}
        return keep_checkpoint(folder, Checkpoint(self.state, step, manifest), **options)

    def test_round_trip(self, tmp_path):
        path = self.kept(tmp_path / "new" / "folder", 12)
        assert path.name == "step-000000012.safetensors"
        state, step, manifest = load_checkpoint(path, self.like)
        assert step == 12
        assert manifest == read_manifest(path) == {"step": 12, "data": "äöü"}
        assert_same_bits(state[1:3], self.state[1:3])
        assert_same_bits(jax.random.key_data(state[0]), jax.random.key_data(KEY))
        assert state[3] == "fixed"

    def test_only_the_newest_are_kept(self, tmp_path):
        for step in (5, 30, 200, 1000):
            self.kept(tmp_path, step, num_kept=2)
        assert [step for step, _ in kept_checkpoints(tmp_path)] == [1000, 200]
        assert len(list(tmp_path.iterdir())) == 2

    def test_a_damaged_one_costs_only_the_steps_since_the_one_before(self, tmp_path):
        self.kept(tmp_path, 1)
        newest = self.kept(tmp_path, 2)
        whole = newest.read_bytes()
        for place in range(0, len(whole), 29):
            newest.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
            found, (reason,) = newest_checkpoint(tmp_path, self.like)
            assert found is not None
            assert found.step == 1
            assert newest.name in reason
        for length in (0, 8, len(whole) // 2, len(whole) - 1):
            newest.write_bytes(whole[:length])
            assert newest_checkpoint(tmp_path, self.like)[0].step == 1
        newest.write_bytes(whole)
        assert newest_checkpoint(tmp_path, self.like)[0].step == 2
        # What a crash in the middle of writing leaves behind is no checkpoint.
        newest.with_name(newest.name + ".1-0123abcd.partial").write_bytes(whole[:100])
        assert newest_checkpoint(tmp_path, self.like)[0].step == 2

    def test_refusals(self, tmp_path):
        path = self.kept(tmp_path, 3)

        def load(path, like=self.like):
            return lambda: load_checkpoint(path, like)

        renamed = path.rename(path.with_name("step-000000009.safetensors"))
        found, (reason,) = newest_checkpoint(tmp_path, self.like)
        assert found is None
        assert "holds step 3" in reason
        foreign, later = tmp_path / "foreign", tmp_path / "later"
        save_file({"weights": np.zeros(3)}, foreign)
        save_file({"a": np.zeros(3)}, later, {"format": "varfilter-checkpoint", "version": "7"})
        refuses(load(foreign), ValueError, "foreign", "not a saved checkpoint")
        refuses(load(later), ValueError, "version 7", "Update varfilter")
        refuses(load(tmp_path / "none"), FileNotFoundError, "`path`", "none")
        shape = (*self.like[:2], {"a": jnp.zeros((2, 3))}, "fixed")
        refuses(load(renamed, shape), ValueError, "another model", "[2, 3]", "manifest")
        fewer = (*self.like[:2], {}, "fixed")
        refuses(load(renamed, fewer), ValueError, "another model", "an extra")

    def test_a_full_disk_leaves_the_old_one(self, tmp_path, monkeypatch):
        def full(_):
            raise OSError(28, "No space left on device")

        path = self.kept(tmp_path, 3)
        before = path.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        refuses(lambda: self.kept(tmp_path, 3), OSError, "`path`", "No space left")
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


CHILD = """
import sys
sys.path[:0] = {folders!r}
import jax
jax.config.update("jax_numpy_dtype_promotion", "strict")
from test_training import KEY, LEARNER, begun, windows
from varfilter.training.checkpoints import Checkpoint, keep_checkpoint, newest_checkpoint
from varfilter.training.fitting import fit
folder, num_updates = sys.argv[1], int(sys.argv[2])
learning = begun(LEARNER)
found, _ = newest_checkpoint(folder, learning)
learning = learning if found is None else found.state
print("started", flush=True)
options = {{"num_updates": num_updates, "updates_per_dispatch": 5}}
for progress in fit(LEARNER, learning, windows(), KEY, **options):
    keep_checkpoint(folder, Checkpoint(progress.state, progress.num_updates, {{}}))
    print(progress.num_updates, flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_parameters(tmp_path):
    """Killed five times at random moments, and resumed, in processes of their own."""
    random, num_updates = np.random.default_rng(0), 400
    code = CHILD.format(folders=list(map(str, Path(__file__).parents[:2])))

    def start(folder):
        command = [sys.executable, "-c", code, str(folder), str(num_updates)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    for _ in range(5):
        child = start(tmp_path / "killed")
        for line in child.stdout:
            if line.strip().isdigit():  # it has compiled, and is under way
                time.sleep(random.uniform(0.0, 0.5))
                break
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    for folder in ("killed", "unbroken"):
        child = start(tmp_path / folder)
        child.communicate()
        assert child.returncode == 0
    ends = [newest_checkpoint(tmp_path / f, begun(LEARNER))[0] for f in ("killed", "unbroken")]
    assert [end.step for end in ends] == [num_updates] * 2
    assert_same_bits(ends[0].state, ends[1].state)


class TestEvaluation:
    """Held against the exact filter, sequence by sequence."""

    @pytest.fixture(autouse=True)
    def _built(self):
        self.model, self.data, self.filter = evaluated()

    def test_equals_each_sequence_alone(self):
        found = evaluate(self.filter, self.model, self.data, KEY, batch_size=2)
        assert found.numbers.tolist() == [0, 1, 2, 4]
        assert found.num_steps.tolist() == [7, 3, 7, 1]
        exact, errors = [], []
        for number in found.numbers:
            xs = self.data.observations(self.data.test[int(number)])
            # All of one length, so that one program is compiled.
            later = len(xs) - 1
            padded, mask = np.pad(xs[1:], ((0, 7 - later), (0, 0))), np.arange(7) < later
            _, filtered = vf.run(self.filter, self.model, padded, KEY, x0=xs[0], mask=mask)
            exact.append(-float(np.sum(filtered.bound)))
            errors.append(100.0 * (np.asarray(filtered.prediction.mean)[:later] - xs[1:]))
        np.testing.assert_allclose(found.free_energy, exact, rtol=1e-5)
        per_step = np.array(exact) / [7, 3, 7, 1]
        assert found.nats == pytest.approx(np.mean(per_step), rel=1e-5)
        assert found.nats_by_step == pytest.approx(np.sum(exact) / 18, rel=1e-5)
        published = np.mean(np.array(exact) / [8, 4, 8, 2])
        assert found.nats_as_published == pytest.approx(published, rel=1e-5)
        assert found.standard_error == pytest.approx(np.std(per_step, ddof=1) / 2, rel=1e-4)
        error = np.sqrt(np.mean(np.concatenate([e.ravel() for e in errors]) ** 2))
        assert found.prediction_error == pytest.approx(error, rel=1e-4)

    def test_iterations_and_batches(self):
        data, filter = dataset(lengths=(8, 5, 7)), begun(LEARNER).filter
        one = evaluate(filter, deep_markov(), data, KEY, batch_size=1)
        many = evaluate(filter, deep_markov(), data, KEY, batch_size=4)
        np.testing.assert_allclose(one.free_energy, many.free_energy, rtol=1e-5)
        assert many.nats_by_iteration.shape == (2,)
        # The bound is F after the last iteration.
        assert many.nats_by_iteration[-1] == pytest.approx(many.nats, rel=1e-5)

    def test_missing_elements_are_not_errors(self):
        values = self.data.test.values.copy()
        values[1::3, 0] = np.nan
        ragged = Ragged(values, self.data.test.lengths)
        gaps = Dataset("gaps", ragged, ragged, ragged, self.data.family, self.data.scaling)
        found = evaluate(self.filter, self.model, gaps, KEY, batch_size=4)
        seen = sum(int(np.sum(~np.isnan(gaps.test[int(n)][1:]))) for n in found.numbers)
        assert np.sum(found.num_observed) == seen
        assert np.isfinite(found.nats)
        assert np.isfinite(found.prediction_error)


def test_refusals():
    def call(**options):
        arguments = {"num_updates": 1} | options
        source = arguments.pop("windows", windows())
        return lambda: next(fit(LEARNER, begun(LEARNER), source, KEY, **arguments))

    refuses(call(num_updates=0), ValueError, "`num_updates`", "0")
    refuses(call(updates_per_dispatch=-1), ValueError, "`updates_per_dispatch`")
    refuses(call(seconds_per_dispatch=-1.0), ValueError, "`seconds_per_dispatch`", "-1.0")
    refuses(call(windows=RandomWindows(dataset(), 1, 3)), ValueError, "`windows`", "at least 2")
    refuses(lambda: Annealing(-1), ValueError, "`num_epochs`", "-1")
    short = dataset(lengths=(1, 1))
    refuses(
        lambda: evaluate(begun(LEARNER).filter, deep_markov(), short, KEY), ValueError, "`split`"
    )
