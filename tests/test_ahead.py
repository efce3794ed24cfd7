"""The loop that runs ahead computes what `lax.scan` computes, with little left in its loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter._ahead import body, equations, loop, scan_ahead, stages
from varfilter.inference import SRNNPosterior
from varfilter.learning import end_to_end
from varfilter.learning.state import Sequences
from varfilter.learning.time_parallel import record_problems

KEY = jax.random.key(4)
NUM_STEPS, SIZE = 7, 3
W, V, U = (0.5 * jax.random.normal(k, (SIZE, SIZE)) for k in jax.random.split(KEY, 3))
INPUTS = (
    jax.random.normal(KEY, (NUM_STEPS, SIZE)),
    jnp.array([True, True, False, True, False, True, True]),
    jnp.arange(NUM_STEPS),
)
ONES = jnp.ones(SIZE)


@jax.custom_vjp
def clipped(x):
    """The identity, whose gradient is held to [-1, 1]."""
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1.0, 1.0),))


def chain(carry, inputs):
    """An LSTM's place (h), a latent on top of it (z), a counter, and a score no step waits for."""
    (h, z, count), (x, exists, t) = carry, inputs
    noise = jax.random.normal(jax.random.fold_in(KEY, t), (SIZE,))
    mean = jax.nn.relu(W @ h) + clipped(V @ z)
    after = (jnp.tanh(W @ h + U @ x), mean + 0.1 * noise, count + 1)
    score = jnp.sum(jax.nn.softplus(U @ (z * mean)))
    kept = {"score": score, "x": x, "noise": noise, "one": ONES}
    return jax.tree.map(lambda a, b: jnp.where(exists, a, b), after, carry), kept


def without_memory(carry, inputs):
    """A latent that does not see the last one, though the prior of the next does."""
    (h, z), (x, exists, _) = carry, inputs
    q = jnp.tanh(V @ h + U @ x)
    return (jnp.where(exists, jnp.tanh(W @ h + x), h), q), jnp.sum((W @ z - q) ** 2)


def with_choices(carry, inputs):
    """A `cond` and a `while` on what is known, and a `cond` on what is not."""
    (h, z), (x, exists, t) = carry, inputs
    y = jax.lax.cond(exists, lambda: U @ x, lambda: x)
    _, scale = jax.lax.while_loop(lambda c: c[0] < t, lambda c: (c[0] + 1, 0.5 * c[1]), (0, 1.0))
    y = scale * y
    z = jax.lax.cond(jnp.sum(z) > 0, lambda: V @ (z + h), lambda: y - z)
    return (jnp.tanh(W @ h + x), z), (y, z)


def with_loops(carry, inputs):
    """Iterations inside of a step, by the same function, with a constant and a random key."""
    (z, same, key), (x, _, t) = carry, inputs

    def iterate(q, k):
        noise = jax.random.normal(jax.random.fold_in(key, k), (SIZE,))
        return jnp.tanh(V @ q + W @ x + 0.1 * noise), jnp.sum(q)

    z, sums = scan_ahead(iterate, z, jnp.arange(3))
    return (z + same, same, jax.random.fold_in(key, t)), sums


def only_a_sum(carry, inputs):
    """A total of what is known for all steps: nothing to be gained, nothing to be broken."""
    x, exists, _ = inputs
    return carry + jnp.where(exists, x @ x, 0.0), None


STEPS = {
    "chain": (chain, (ONES, 0.5 * ONES, jnp.zeros((), jnp.int32))),
    "without-memory": (without_memory, (ONES, 0.5 * ONES)),
    "with-choices": (with_choices, (ONES, 0.5 * ONES)),
    "with-loops": (with_loops, (ONES, 0.1 * ONES, KEY)),
    "only-a-sum": (only_a_sum, jnp.zeros(())),
}


def random_step(seed):
    """Some of six leaves feed some others, and themselves; so do x and products of two leaves."""
    generator = np.random.default_rng(seed)
    count = 6
    feeds = generator.random((count, count)) < 0.25
    weights = 0.4 * generator.normal(size=(count, count, SIZE, SIZE)).astype(np.float32)
    pairs = generator.integers(0, count, (count, 2))
    is_paired, sees_x = generator.random((2, count)) < 0.4

    def step(carry, inputs):
        x, exists, _ = inputs
        after = []
        for i, leaf in enumerate(carry):
            total = ONES * 0.1 + (U @ x if sees_x[i] else 0.0)
            for j in np.flatnonzero(feeds[i]):
                total = total + weights[i, j] @ carry[j]
            if is_paired[i]:
                total = total + carry[pairs[i, 0]] * carry[pairs[i, 1]]
            after.append(jnp.where(exists, jnp.tanh(total), leaf) if i % 2 else jnp.tanh(total))
        return after, (after[0] * carry[3], jnp.sum(after[1]))

    return step, [ONES / (i + 1) for i in range(count)]


def floats(tree):
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])


def assert_equal_scans(step, init, **options):
    # One program sums in another order than the other: roundings of numbers of order one, which
    # seven steps of a contraction do not enlarge.
    close = functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)
    plain = functools.partial(jax.lax.scan, step, **options)
    ahead = functools.partial(scan_ahead, step, **options)
    expected, found = plain(init, INPUTS), jax.jit(ahead)(init, INPUTS)
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    close(floats(found), floats(expected))

    def value(scan, x):
        return jnp.sum(floats(scan(init, (x, *INPUTS[1:]))) ** 2)

    xs = jnp.stack([INPUTS[0], -0.5 * INPUTS[0]])
    # In one program each: step by step, outside of one, they take a hundred.
    slopes = [
        jax.jit(jax.vmap(jax.grad(functools.partial(value, scan))))(xs) for scan in (plain, ahead)
    ]
    close(slopes[1], slopes[0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_it_is_lax_scan(name, reverse):
    assert_equal_scans(*STEPS[name], reverse=reverse)


@pytest.mark.parametrize("name", ["chain", "without-memory"])
def test_gradients_of_matrices_may_be_summed_behind(name):
    step, init = STEPS[name]

    def loss(matrices, scan):
        with pytest.MonkeyPatch.context() as patch:
            for letter, matrix in zip("WVU", matrices, strict=True):
                patch.setitem(globals(), letter, matrix)
            # A function of its own for each: `lax.scan` remembers what it has traced.
            return jnp.sum(floats(scan(lambda *inputs: step(*inputs), init, INPUTS)) ** 2)

    ahead = functools.partial(scan_ahead, gradients_behind=True)
    expected, found = (
        jax.jit(jax.grad(functools.partial(loss, scan=scan)))((W, V, U))
        for scan in (jax.lax.scan, ahead)
    )
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), found, expected
    )

    # The loop backwards has no product of the shape of a matrix, which is an outer product.
    for backwards in loops(lambda m: jax.grad(loss)(m, ahead), (W, V, U)):
        outer = [eqn for eqn in backwards.params["jaxpr"].eqns if eqn.outvars[0].aval.ndim == 2]
        assert not any(eqn.primitive.name == "dot_general" for eqn in outer)


@pytest.mark.parametrize("name", ["chain", "with-loops"])
def test_it_is_lax_scan_with_matrices_as_accelerators_have_them(name, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "accelerator")
    monkeypatch.setattr(body, "MOST_UNSPLIT", 0)
    step, init = STEPS[name]
    found = loops(lambda i: scan_ahead(step, i, INPUTS), init)
    # All are padded ahead of their loops, and none inside.
    assert {pair[1][-1] for loop in found for pair in products(loop)} == {body.COLUMNS}
    assert_equal_scans(step, init)


def test_of_a_loop_without_a_gradient_what_is_cut_is_multiplied_with_what_it_was_cut_from():
    def step(z, x):
        cut = jax.lax.stop_gradient(z)
        return jnp.tanh(W @ z + V @ cut + jax.lax.stop_gradient(W) @ cut + x), jnp.sum(U @ cut)

    def found(**options):
        return loops(lambda z: scan_ahead(step, z, INPUTS[0], **options), ONES)[-1]

    # W z is there once, whichever z it is, and V z and U z are more rows of it.
    assert products(found(has_gradient=False)) == [((SIZE,), (2 * SIZE, SIZE))]
    assert len(products(found())) == 2
    expected = jax.lax.scan(step, ONES, INPUTS[0])
    made = scan_ahead(step, ONES, INPUTS[0], has_gradient=False)
    # Roundings of sums of order one in another order.
    np.testing.assert_allclose(floats(made), floats(expected), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_lax_scan_whatever_feeds_what(seed):
    assert_equal_scans(*random_step(seed))


@pytest.mark.parametrize("reverse", [False, True])
def test_long_sequences_are_cut_into_pieces(monkeypatch, reverse):
    # Pieces of 3 steps of 7: two of them, and a rest.
    step, init = STEPS["chain"]
    traced = equations.trace(step, init, INPUTS, has_gradient=True)
    assert traced is not None
    jaxpr, consts, _ = traced
    num_bytes = stages.StagePlan(jaxpr, len(consts), len(init)).num_bytes
    monkeypatch.setattr(loop, "MOST_BYTES", 3 * num_bytes)
    found = loops(lambda i: scan_ahead(step, i, INPUTS), init)
    assert sorted(loop.params["length"] for loop in found) == [1, 1, 2, 3, 3]
    assert_equal_scans(step, init, reverse=reverse)


def test_steps_may_be_written_out(monkeypatch):
    monkeypatch.setattr(loop, "_unroll", lambda num_products: 3)
    assert_equal_scans(*STEPS["chain"])


def test_it_refuses_and_promotes_as_lax_scan_does():
    with pytest.raises(TypeError, match="carry"):
        scan_ahead(lambda c, x: (c[:1], x), ONES, INPUTS[0])
    last, _ = scan_ahead(lambda c, x: (c + x[0], None), 0.0, INPUTS[0])
    np.testing.assert_allclose(last, jnp.sum(INPUTS[0][:, 0]), rtol=1e-5)


def test_a_step_with_effects_is_left_as_it_is():
    seen = []

    def step(carry, x):
        jax.debug.callback(lambda x: seen.append(float(x)), x[0], ordered=True)
        return carry + x, None

    scan_ahead(step, ONES, INPUTS[0])
    jax.effects_barrier()
    np.testing.assert_array_equal(seen, np.asarray(INPUTS[0][:, 0]))


def loops(function, *arguments):
    """The loops of a traced function, at any depth, in the order of the program."""

    def within(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "scan":
                yield equation
            for value in equation.params.values():
                for part in value if isinstance(value, tuple | list) else (value,):
                    inner = getattr(part, "jaxpr", part)
                    if hasattr(inner, "eqns"):
                        yield from within(inner)

    return list(within(jax.make_jaxpr(function)(*arguments).jaxpr))


def products(loop):
    """The shapes of the factors of each product in the body of a loop."""
    equations = loop.params["jaxpr"].jaxpr.eqns
    return [
        tuple(variable.aval.shape for variable in equation.invars)
        for equation in equations
        if equation.primitive.name == "dot_general"
    ]


def test_what_waits_for_nothing_is_in_no_loop():
    step, init = STEPS["without-memory"]
    (loop,) = loops(lambda i: scan_ahead(step, i, INPUTS), init)
    assert products(loop) == [((SIZE, SIZE), (SIZE,))]  # W h, and nothing of V, U or z

    first, second = loops(lambda i: scan_ahead(chain, i, INPUTS), STEPS["chain"][1])
    assert products(first) == products(second) == [((SIZE, SIZE), (SIZE,))]
    names = {eqn.primitive.name for loop in (first, second) for eqn in loop.params["jaxpr"].eqns}
    assert not any("random" in name or "threefry" in name for name in names)
    assert "reduce_sum" not in names  # the score has a product, and is computed behind the loops


RECURRENT, LATENT = 11, 4


@pytest.mark.parametrize("num_iterations", [1, 2])
def test_with_complete_data_no_loop_of_srnn_multiplies_the_state_of_its_lstm_but_its_own(
    num_iterations,
):
    model = vf.SRNN(5, LATENT, recurrent_size=RECURRENT, prior_size=6, decoder_size=7, key=KEY)
    inference = vf.Iterative(model, hidden_size=8, num_iterations=num_iterations, key=KEY)
    filter = vf.VariationalFilter(inference)
    batch = Sequences(jnp.zeros((2, 4, 5)), jnp.ones((2, 4), bool), jnp.zeros((2, 5)))

    def record(complete):
        return loops(
            lambda xs: record_problems(
                model, filter, Sequences(xs, batch.mask, batch.x0), KEY, jnp.ones(()),
                complete=complete,
            ),
            batch.xs,
        )  # fmt: skip

    lstm, latents = (loop for loop in record(True) if loop.params["length"] == 4)
    assert products(lstm) == [((2, RECURRENT), (4 * RECURRENT, RECURRENT))]
    factors = [shape for pair in products(latents) for shape in pair]
    assert factors
    assert not any(RECURRENT in shape for shape in factors)

    # With elements missing, and drawn, everything depends on everything: one loop does it all.
    (whole,) = (loop for loop in record(False) if loop.params["length"] == 4)
    assert any(RECURRENT in shape for pair in products(whole) for shape in pair)


def test_a_baseline_that_sees_no_latent_leaves_the_lstm_alone_in_a_loop():
    model = vf.SRNN(5, LATENT, recurrent_size=RECURRENT, prior_size=6, decoder_size=7, key=KEY)
    filter = vf.VariationalFilter(vf.Amortized(SRNNPosterior(model, hidden_size=8, key=KEY)))
    xs = jnp.asarray(worlds.observations(model, 4))
    batch = Sequences(xs[None], jnp.ones((1, 4), bool), None)
    found = loops(
        lambda xs: end_to_end.filter_batch(
            model, filter, Sequences(xs, batch.mask, None), KEY, complete=True
        )[0],
        batch.xs,
    )
    (lstm,) = (loop for loop in found if loop.params["length"] == 4)
    assert products(lstm) == [((1, RECURRENT), (4 * RECURRENT, RECURRENT))]
