"""Learning: equal gradients by two routes, guarded updates, and free energy that falls."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
import worlds
from varfilter import filtering
from varfilter.inference import Highway, MLPPosterior, iterative
from varfilter.learning import end_to_end, recurrence, step_by_step, time_parallel
from varfilter.learning.state import Sequences

KEY = jax.random.key(5)


def batch_with_gaps(model: vf.AbstractModel, *, has_x0: bool) -> Sequences:
    """Two ragged sequences with missing elements and a step without any observation."""
    xs = np.stack([worlds.with_gaps(worlds.observations(model, 6, seed)) for seed in (1, 2)])
    mask = np.stack([np.ones(6, bool), np.arange(6) < 5])
    x0 = worlds.with_gaps(worlds.observations(model, 6, 9))[:2] if has_x0 else None
    us = None
    if model.input_size:
        us = jnp.stack([jnp.asarray(worlds.known_inputs(model, 6, seed)) for seed in (1, 2)])
    x0 = None if x0 is None else jnp.asarray(x0)
    return Sequences(jnp.asarray(xs), jnp.asarray(mask), x0, us)


@eqx.filter_jit
def record_problems(model, filter, batch, key, weight):
    """Of sequences with gaps, in one program."""
    return time_parallel.record_problems(model, filter, batch, key, weight, complete=False)


@eqx.filter_jit
def parallel_gradients(model, filter, batch):
    weight = jnp.ones(()) * 0.7
    problems, x0, _ = time_parallel.record_problems(
        model, filter, batch, KEY, weight, complete=False
    )
    theta, scored = time_parallel.theta_gradients(model, filter, x0, problems, weight)
    flat = jax.tree.map(lambda leaf: leaf.reshape(12, *leaf.shape[2:]), (problems, scored))
    return theta, time_parallel.phi_gradients(filter, model, flat[0], flat[1], weight)


def gradient_distances(build, num_iterations: int, *, has_x0: bool) -> tuple[float, float]:
    model = build()
    inference = vf.Iterative(model, hidden_size=7, num_iterations=num_iterations, key=KEY)
    filter = vf.VariationalFilter(inference)
    batch = batch_with_gaps(model, has_x0=has_x0)
    got = parallel_gradients(model, filter, batch)
    want = step_by_step.gradients(model, filter, batch, KEY, jnp.ones(()) * 0.7)
    theta, phi = (worlds.relative_distance(a, b) for a, b in zip(got, want, strict=True))
    return theta, phi


@pytest.mark.parametrize(
    ("build", "num_iterations"),
    [
        pytest.param(worlds.linear_gaussian, 1, marks=pytest.mark.slow),
        pytest.param(worlds.linear_dynamics, 1, marks=pytest.mark.slow),
        pytest.param(worlds.deep_markov, 1, marks=pytest.mark.slow),
        pytest.param(worlds.vrnn, 1, marks=pytest.mark.slow),
        pytest.param(worlds.srnn, 1, marks=pytest.mark.slow),
        # In double precision, below, by default.
        pytest.param(worlds.srnn, 3, marks=pytest.mark.slow),
        pytest.param(worlds.svg, 1, marks=pytest.mark.slow),
        pytest.param(worlds.svg_of_changes, 1, marks=pytest.mark.slow),
    ],
)
def test_time_parallel_gradients_equal_step_by_step_ones(build, num_iterations):
    # The same sums in another order: a few dozen roundings of 6e-8 each.
    assert max(gradient_distances(build, num_iterations, has_x0=False)) < 1e-5


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(worlds.driven_gaussian, marks=pytest.mark.slow),
        pytest.param(worlds.deep_markov, marks=pytest.mark.slow),
        pytest.param(worlds.vrnn, marks=pytest.mark.slow),
        pytest.param(worlds.srnn, marks=pytest.mark.slow),
        worlds.differenced,  # an SRNN inside
        pytest.param(worlds.logarithmic, marks=pytest.mark.slow),
    ],
)
def test_time_parallel_gradients_equal_step_by_step_ones_with_known_inputs(build):
    with jax.enable_x64(True):
        driven = functools.partial(build, inputs=2)
        # Double precision: what `drive` adds to a gradient cannot hide in roundings.
        assert max(gradient_distances(driven, 3, has_x0=True)) < 1e-10


# With inputs, above, by default.
@pytest.mark.slow
@pytest.mark.parametrize("num_iterations", [1, 3])
def test_time_parallel_gradients_equal_step_by_step_ones_in_double_precision(num_iterations):
    with jax.enable_x64(True):
        assert max(gradient_distances(worlds.srnn, num_iterations, has_x0=True)) < 1e-10


SOME = [worlds.srnn, pytest.param(worlds.vrnn, marks=pytest.mark.slow)]


def plain_scan(step, init, xs, *, has_gradient=True, **options):
    """`lax.scan` in the place of `scan_ahead`."""
    return jax.lax.scan(step, init, xs, **options)


@pytest.mark.parametrize("build", SOME)
def test_gradients_of_complete_data_are_those_of_a_plain_loop_over_time(build, monkeypatch):
    """Nothing is missing, so that most is computed ahead of the loop; in 64 bits, all but equal."""
    with jax.enable_x64(True):
        model = build()
        filter = vf.VariationalFilter(vf.Iterative(model, hidden_size=7, key=KEY))
        xs = jnp.stack([jnp.asarray(worlds.observations(model, 6, seed)) for seed in (1, 2)])
        batch = Sequences(xs, jnp.array([[True] * 6, [True] * 2 + [False] + [True] * 3]), None)

        def gradients():
            weight = jnp.ones(())
            problems, x0, values = time_parallel.record_problems(
                model, filter, batch, KEY, weight, complete=True
            )
            theta, scored = time_parallel.theta_gradients(model, filter, x0, problems, weight)
            flat = jax.tree.map(lambda leaf: leaf.reshape(12, *leaf.shape[2:]), (problems, scored))
            return values, theta, time_parallel.phi_gradients(filter, model, *flat, weight)

        got = eqx.filter_jit(gradients)()
        for module in (filtering, iterative, recurrence, time_parallel):
            monkeypatch.setattr(module, "scan_ahead", plain_scan)
        want = eqx.filter_jit(lambda: gradients())()
        for ours, plain in zip(got, want, strict=True):
            assert worlds.relative_distance(ours, plain) < 1e-12


# By default the model whose recurrence sees what was observed, too.
@pytest.mark.parametrize("build", [*SOME, pytest.param(worlds.deep_markov, marks=pytest.mark.slow)])
@pytest.mark.parametrize("complete", [True, False])
def test_end_to_end_learning_scores_what_filtering_scores(build, complete):
    """`follow` leaves out how a belief outlives an absurd observation, and nothing else."""
    model = build()
    filter = vf.VariationalFilter(worlds.baseline(model), num_samples=2)
    batch = batch_with_gaps(model, has_x0=False)
    if complete:
        batch = Sequences(jnp.nan_to_num(batch.xs), batch.mask, None)
    score = eqx.filter_jit(functools.partial(end_to_end.filter_batch, complete=complete))
    bound, info = score(model, filter, batch, KEY)
    for number, key in enumerate(jax.random.split(KEY, 2)):
        xs, mask = batch.xs[number], batch.mask[number]
        _, filtered = vf.run(filter, model, xs, key, mask=mask, complete=complete)
        # Two programs for the same 32-bit numbers, over six steps.
        close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
        close(bound[number][mask], filtered.bound[mask])
        close(info.kl[number][mask], filtered.info.kl[mask])
    assert not np.any(info.num_fallbacks)


def test_learning_meets_the_states_that_filtering_meets():
    """What is missing, of the first observation too, is drawn in both, by the same numbers."""
    model = worlds.srnn()
    filter = vf.VariationalFilter(vf.Iterative(model, hidden_size=7, key=KEY))
    batch = batch_with_gaps(model, has_x0=True)
    problems, _, _ = record_problems(model, filter, batch, KEY, jnp.ones(()))
    begin = eqx.filter_jit(vf.start)
    for number, key in enumerate(jax.random.split(KEY, 2)):
        belief = begin(filter, model, batch.x0[number], key)
        belief, _ = vf.run(filter, model, batch.xs[number, :5], key, belief=belief)
        state = jax.tree.map(lambda leaf, n=number: leaf[n, 5], problems.state)
        # Two programs for the same 32-bit numbers.
        assert worlds.relative_distance(state, belief.carry.state) < 1e-5


def test_step_by_step_gradient_is_the_derivative_of_the_free_energy():
    # θ's gradient by finite differences of the mean F_t, the q_t and z_t held where they were.
    # Central differences of step 1e-5 err by about 1e-10 (step^2) + 1e-11 (rounding / step).
    with jax.enable_x64(True):
        model = worlds.deep_markov()
        filter = vf.VariationalFilter(vf.Iterative(model, hidden_size=5, key=KEY))
        batch = batch_with_gaps(model, has_x0=False)
        theta, _ = step_by_step.gradients(model, filter, batch, KEY, jnp.ones(()))
        problems, _, _ = record_problems(model, filter, batch, KEY, jnp.ones(()))

        num_steps = float(np.sum(np.asarray(batch.mask)))

        @eqx.filter_jit
        def mean_free_energy(model):
            def sequence(problems):
                def step(state, problem):
                    value = vf.free_energy(
                        problem.posterior, model, state, problem.x, problem.key
                    ).total
                    after = model.advance(state, problem.z, None)
                    after = jax.tree.map(lambda a, b: jnp.where(problem.exists, a, b), after, state)
                    return after, jnp.where(problem.exists, value, 0.0)

                return jax.lax.scan(step, model.init(), problems)[1]

            return jnp.sum(jax.vmap(sequence)(problems)) / num_steps

        where = lambda m: m.transition.carry.weight  # noqa: E731
        weight = where(model)
        direction = jnp.asarray(np.random.default_rng(0).normal(size=weight.shape))
        ahead, behind = (
            mean_free_energy(eqx.tree_at(where, model, weight + sign * 1e-5 * direction))
            for sign in (1, -1)
        )
        slope = float((ahead - behind) / 2e-5)
        assert slope == pytest.approx(float(jnp.sum(where(theta) * direction)), rel=1e-6)


def tiny_learning(learner, model, inference):
    return learner.init(model, vf.VariationalFilter(inference))


def test_a_non_finite_gradient_is_skipped_counted_and_never_reaches_the_parameters():
    model = worlds.deep_markov()
    xs = jnp.asarray(worlds.observations(model, 6))[None]
    adam = optax.adam(1e-2)
    # A candidate of its own, far from so absurd a prior; `Shift` would stay beside it.
    iterative = vf.Iterative(model, update=Highway, hidden_size=5, key=KEY)
    for learner, inference in (
        (vf.TimeParallel(theta=adam, phi=adam), iterative),
        (vf.EndToEnd(theta=adam, phi=adam), vf.Amortized(MLPPosterior(model, key=KEY))),
    ):
        learning = tiny_learning(learner, model, inference)
        learning, metrics = learner.update(learning, xs, KEY)
        assert int(metrics.num_skipped) == 0
        assert int(learning.last_skipped) == -1
        # The square of 1e30 overflows float32, and with it the divergence and its gradient.
        where = lambda state: state.model.initial.mean  # noqa: E731
        huge = eqx.tree_at(where, learning, jnp.full((2,), 1e30))
        after, metrics = learner.update(huge, xs, KEY)
        assert not np.isfinite(float(metrics.theta_gradient_norm))
        assert int(metrics.num_skipped) == int(after.num_skipped) > 0
        assert int(after.last_skipped) == 1
        assert int(after.num_updates) == 2
        worlds.assert_same_bits(after.model, huge.model)
        assert np.isfinite(worlds.vector((after.model, after.filter))).all()
        worlds.assert_same_bits(after.theta_state, learning.theta_state)
        after = eqx.tree_at(where, after, where(learning))
        resumed, metrics = learner.update(after, xs, KEY)
        assert int(metrics.num_skipped) == 0
        assert not np.array_equal(worlds.vector(resumed.model), worlds.vector(after.model))
        assert np.isfinite(worlds.vector((resumed.model, resumed.filter))).all()


def test_an_absurd_reading_in_the_training_data_is_learned_past():
    """Its gradient is no larger than that of an ordinary reading, so that no optimizer whose
    memory is long is spoilt by it, and the rest of the batch is learned from."""
    model = worlds.deep_markov()
    xs = jnp.asarray(worlds.observations(model, 6))[None]
    learner = vf.TimeParallel(theta=optax.adam(1e-2), phi=optax.adam(1e-2))
    learning = tiny_learning(learner, model, vf.Iterative(model, hidden_size=5, key=KEY))
    _, usual = learner.update(learning, xs, KEY)
    for outlier in (1e12, 1e30, 3e38):
        after, metrics = learner.update(learning, xs.at[0, 2, 1].set(outlier), KEY)
        assert int(metrics.num_skipped) == 0
        assert float(metrics.theta_gradient_norm) < 10 * float(usual.theta_gradient_norm)
        assert np.isfinite(worlds.vector((after.model, after.filter))).all()


def test_both_learners_report_the_same_metrics_and_none_holds_fixed():
    model = worlds.deep_markov()
    xs = jnp.asarray(worlds.observations(model, 6))[None]
    avf = vf.TimeParallel(theta=None, phi=optax.adam(1e-2), num_phi_steps=4)
    one_shot = vf.EndToEnd(theta=optax.adam(1e-2), phi=None)
    inference = vf.Iterative(model, hidden_size=5, num_iterations=2, key=KEY)
    before = tiny_learning(avf, model, inference)
    after, metrics = avf.update(before, xs, KEY)
    worlds.assert_same_bits(after.model, before.model)
    assert not np.array_equal(worlds.vector(after.filter), worlds.vector(before.filter))
    assert metrics.free_energies.shape == (3,)
    parts = float(metrics.reconstruction + metrics.kl)
    assert float(metrics.free_energy) == pytest.approx(parts, rel=1e-5)
    assert float(metrics.free_energies[-1]) == pytest.approx(float(metrics.free_energy), rel=1e-6)

    before = tiny_learning(one_shot, model, vf.Amortized(MLPPosterior(model, key=KEY)))
    after, other = one_shot.update(before, xs, KEY)
    worlds.assert_same_bits(after.filter, before.filter)
    assert jax.tree.structure(other) == jax.tree.structure(metrics)
    assert other.free_energies.shape == (1,)


def test_every_problem_is_in_one_slice():
    tree = jnp.arange(15).reshape(3, 5)
    slices = time_parallel._random_slices(tree, 5, KEY)
    assert slices.shape == (5, 3)
    assert sorted(np.asarray(slices).ravel()) == list(range(15))
    # 15 problems in 4 slices of 4: each at least once, and one of them again.
    uneven = np.asarray(time_parallel._random_slices(tree, 4, KEY)).ravel()
    assert uneven.size == 16
    assert set(uneven) == set(range(15))


# The learner of `amortized` is that of `fivo`.
@pytest.mark.parametrize("kind", ["avf", pytest.param("amortized", marks=pytest.mark.slow), "fivo"])
def test_training_lowers_the_free_energy(kind):
    model = worlds.deep_markov()
    truth = vf.LinearGaussian(
        transition=0.9 * np.eye(2), process_covariance=0.3 * np.eye(2),
        loading=np.ones((4, 2)), noise_covariance=0.1 * np.eye(4),
    )  # fmt: skip
    xs = jnp.asarray(np.stack([worlds.observations(truth, 12, seed) for seed in range(8)]))
    adam = optax.adam(1e-2)
    iterative = vf.Iterative(model, hidden_size=16, encode_observation=True, key=KEY)
    if kind == "avf":
        learner = vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=4)
        filter = vf.VariationalFilter(iterative)
    elif kind == "amortized":
        learner = vf.EndToEnd(theta=adam, phi=adam)
        filter = vf.VariationalFilter(vf.Amortized(MLPPosterior(model, hidden_size=16, key=KEY)))
    else:
        learner = vf.EndToEnd(theta=adam, phi=adam)
        filter = vf.ParticleFilter(iterative, 4)
    learning = learner.init(model, filter)
    values = []
    for index in range(120):
        learning, metrics = learner.update(learning, xs, jax.random.fold_in(KEY, index))
        values.append(float(metrics.free_energy))
    first, last = np.mean(values[:5]), np.mean(values[-20:])
    # Independent Gaussians fitted to each element are what a model without dynamics can do.
    flat = np.asarray(xs).reshape(-1, 4)
    marginal = float(np.sum(0.5 * np.log(2 * np.pi * np.e * flat.var(axis=0))))
    assert last < first - 1.0
    assert last < marginal
    assert int(learning.num_skipped) == 0
