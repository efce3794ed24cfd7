"""Traced programs are kept: found by what they were traced from, the same to the bit, or not."""

import itertools
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from tiny_runs import keep_untrained, readings, tiny
from varfilter._files import PROGRAMS
from varfilter._programs import kept_jit, kept_shapes, store
from varfilter._programs.identity import Unknown, digest
from varfilter._programs.structure import put_together, taken_apart
from varfilter.cli.compiled import forget_unfinished
from varfilter.filtering import run, start
from varfilter.filters import KalmanFilter, ParticleFilter
from varfilter.inference import Prior
from varfilter.runs import Run, applied, filter_data
from varfilter.runs.run import _built
from varfilter.training import fitting
from worlds import KEY, linear_gaussian

MODEL = linear_gaussian()
XS = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where programs are kept in this test."""
    monkeypatch.setenv(PROGRAMS, str(tmp_path))
    return tmp_path


@pytest.fixture
def traced(monkeypatch):
    """The names of the functions that were traced to be kept."""
    names = []
    original = kept_jit._traced

    def recorded(self, *arguments):
        names.append(self._function.__name__)
        return original(self, *arguments)

    monkeypatch.setattr(kept_jit, "_traced", recorded)
    return names


def assert_same(one, two):
    """Equal to the bit, and of the same types."""
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        np.testing.assert_array_equal(a, b)


def test_a_later_start_finds_the_program_and_gets_the_same_numbers(folder, traced):
    filter = ParticleFilter(Prior(), 8)
    expected = eqx.filter_jit(run)(filter, MODEL, XS, KEY)
    assert_same(kept_jit(run)(filter, MODEL, XS, KEY), expected)
    (path,) = folder.iterdir()
    # Another object, as another process has: nothing is traced, and other numbers may come.
    later = kept_jit(run)
    assert_same(later(filter, MODEL, XS, KEY), expected)
    other = jax.random.fold_in(KEY, 1)
    twice = eqx.filter_jit(run)(filter, MODEL, 2 * XS, other)
    assert_same(later(filter, MODEL, 2 * XS, other), twice)
    assert traced == ["run"]
    # What looks after compiled programs takes it for a whole one.
    forget_unfinished(folder)
    assert path.exists()


def test_other_settings_shapes_and_types_are_other_programs(folder, traced):
    later, started = kept_jit(start), eqx.filter_jit(start)
    x0 = XS[0]
    for filter in (ParticleFilter(Prior(), 8), ParticleFilter(Prior(), 9), KalmanFilter()):
        assert_same(later(filter, MODEL, x0, KEY), started(filter, MODEL, x0, KEY))
    larger = linear_gaussian(4)
    assert_same(later(KalmanFilter(), larger, x0), started(KalmanFilter(), larger, x0))
    later(KalmanFilter(), MODEL)
    assert len(traced) == len(list(folder.iterdir())) == 5
    with jax.enable_x64(True):
        later(KalmanFilter(), linear_gaussian())
    assert len(traced) == 6


@pytest.mark.parametrize("damage", [lambda c: c[: len(c) // 2], lambda c: zlib.compress(b"{}\n")])
def test_a_damaged_program_is_traced_anew(folder, traced, damage):
    expected = kept_jit(start)(KalmanFilter(), MODEL)
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert_same(kept_jit(start)(KalmanFilter(), MODEL), expected)
    assert traced == ["start", "start"]
    # In its place there is a whole one now.
    assert_same(kept_jit(start)(KalmanFilter(), MODEL), expected)
    assert len(traced) == 2


class OwnModel(vf.AbstractModel):
    """What a user writes in a file of theirs, which may be another tomorrow."""

    def init(self, x0=None):
        return jnp.zeros(())

    def embed(self, x):
        return None

    def prior(self, state):
        return vf.Normal(jnp.zeros(1), jnp.zeros(1))

    def emission(self, state, z):
        return vf.Normal(z, jnp.zeros(1))

    def advance(self, state, z, features):
        return state


def test_what_cannot_be_kept_is_compiled_as_ever(folder, tmp_path, monkeypatch):
    filter = ParticleFilter(Prior(), 4)
    expected = run(filter, OwnModel(), XS[:, :1], KEY)
    assert_same(kept_jit(run)(filter, OwnModel(), XS[:, :1], KEY), expected)
    # A user's function, a folder that is not there, and a call inside of another program.
    kept_jit(run)(filter, MODEL, XS, KEY, keep=lambda filtered: filtered.bound)
    jax.jit(lambda x: kept_jit(start)(KalmanFilter(), MODEL, x))(XS[0])
    assert list(folder.iterdir()) == []
    monkeypatch.setenv(PROGRAMS, str(tmp_path / "gone"))
    assert_same(kept_jit(start)(KalmanFilter(), MODEL), start(KalmanFilter(), MODEL))
    # Without a folder no file is looked for, and errors are those of the function.
    monkeypatch.delenv(PROGRAMS)
    assert_same(kept_jit(start)(KalmanFilter(), MODEL), start(KalmanFilter(), MODEL))
    monkeypatch.setenv(PROGRAMS, str(folder))
    with pytest.raises(ValueError, match="`xs` must have shape"):
        kept_jit(run)(KalmanFilter(), MODEL, XS[:, :1])
    assert list(folder.iterdir()) == []


def test_things_are_known_by_all_that_they_are_made_of():
    distinct = [
        1, 1.0, True, "1", None, (1,), [1], {"1": 1}, np.float32(1), np.ones(1), jnp.ones(2),
        jax.random.key(0), jax.random.key(1), jax.nn.relu, jnp.tanh, linear_gaussian(4),
        optax.adam(1e-3), optax.adam(1e-2), optax.sgd(1e-3),
        optax.adam(optax.linear_schedule(1e-3, 1e-4, 10)),
        optax.adam(optax.linear_schedule(1e-3, 1e-4, 11)),
        jax.tree.structure(MODEL), jax.tree.structure(linear_gaussian(4)), vf.SRNN.init, start, run,
    ]  # fmt: skip
    # Structures of one model are one, whatever its sizes: all that is static in it is equal.
    names = [digest(value) for value in distinct]
    same = [(a, b) for a, b in itertools.combinations(range(len(names)), 2) if names[a] == names[b]]
    assert [(distinct[a], distinct[b]) for a, b in same] in ([], [(distinct[21], distinct[22])])
    for build in (lambda: optax.adam(1e-3), lambda: MODEL, lambda: vf.Normal(XS[0], XS[1])):
        assert digest(build()) == digest(build())
    assert digest(MODEL) != digest(eqx.tree_at(lambda m: m.transition, MODEL, jnp.zeros((3, 3))))
    for unknown in (lambda: None, OwnModel(), object(), iter(())):
        with pytest.raises(Unknown):
            digest(unknown)


def test_other_code_makes_other_names(monkeypatch):
    before = digest(1)
    monkeypatch.setattr("varfilter._programs.identity._code", lambda: "another version")
    assert digest(1) != before


def test_a_tree_is_put_together_as_it_was():
    posterior = vf.DiscretizedNormal(jnp.zeros(2), jnp.ones(2), (0.5, 1.0), (0.0, None))
    state = optax.adam(1e-3).init({"w": jnp.ones(3)})
    tree = (posterior, [KEY, 1.5, float("inf")], {"f": jax.nn.relu, "n": None}, state, MODEL)
    structure, arrays = taken_apart(tree)
    again = put_together(structure, arrays)
    assert_same(jax.tree.map(_numbers, again), jax.tree.map(_numbers, tree))
    assert again[2]["f"] is jax.nn.relu
    with pytest.raises(Unknown):
        taken_apart((lambda: None, OwnModel()))


def _numbers(leaf):
    is_key = eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


@pytest.mark.parametrize("medium", ["table", "music"])
def test_shapes_are_found_without_building_anything(folder, tmp_path, monkeypatch, medium):
    experiment, dataset = tiny(medium, tmp_path)
    expected = eqx.filter_eval_shape(lambda: _built(experiment, dataset))
    num_files = len(list(folder.iterdir()))
    assert_equal_shapes(kept_shapes(_built, experiment, dataset), expected)
    assert len(list(folder.iterdir())) == num_files + 1
    monkeypatch.setattr(eqx, "filter_eval_shape", None)
    assert_equal_shapes(kept_shapes(_built, experiment, dataset), expected)


def assert_equal_shapes(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype) if hasattr(a, "shape") else a == b


def test_training_and_filtering_trace_nothing_at_their_second_start(
    tmp_path, monkeypatch, traced
):  # fmt: skip
    experiment, dataset = tiny("table", tmp_path)
    model, filter, _ = experiment.build(dataset)
    windows = experiment.windows(dataset)
    data, programs = readings(tmp_path), tmp_path / "programs"
    programs.mkdir()
    run = Run.begin(tmp_path / "run", experiment, dataset)
    keep_untrained(run)
    found = []
    for number in range(3):
        if number:  # the first start has no folder to keep programs in
            monkeypatch.setenv(PROGRAMS, str(programs))
        monkeypatch.setattr(fitting, "_kept_updates", kept_jit(fitting._updates))
        for name in ("start", "run_predictive"):
            monkeypatch.setattr(applied, f"_{name}", kept_jit(getattr(applied, name)))
        # As new as after a start: what they enclose is the same.
        learner = vf.TimeParallel(theta=optax.adam(1e-2), phi=optax.adam(1e-2))
        state = learner.init(model, filter)
        *_, fitted = vf.fit(learner, state, windows, KEY, num_updates=2, updates_per_dispatch=1)
        rows = list(filter_data(run, data, num_particles=4, num_samples=8))
        assert sorted(traced) == (["_updates", "run_predictive", "start"] if number else [])
        found.append((jax.tree.leaves(fitted), repr(rows)))
    for one, two in itertools.pairwise(found):
        assert_same(one, two)


def test_a_program_that_this_jax_cannot_compile_is_traced_anew(folder, traced, monkeypatch):
    expected = kept_jit(start)(KalmanFilter(), MODEL)
    (path,) = folder.iterdir()
    line, _, _ = zlib.decompress(path.read_bytes()).partition(b"\n")
    path.write_bytes(zlib.compress(line + b"\nno module"))
    assert_same(kept_jit(start)(KalmanFilter(), MODEL), expected)
    assert len(traced) == 2
    # Nor is it a reason to stop that nothing can be written.
    monkeypatch.setattr(store, "written", lambda path: (_ for _ in ()).throw(OSError("no room")))
    path.unlink()
    assert_same(kept_jit(start)(KalmanFilter(), MODEL), expected)
    assert not path.exists()
