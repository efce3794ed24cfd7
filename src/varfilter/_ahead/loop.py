"""The loop itself: a plan made for one step, carried out for all of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, Var

from varfilter._ahead.body import Body, evaluate
from varfilter._ahead.equations import num_products, trace
from varfilter._ahead.stages import StagePlan
from varfilter._tree import strong

# Of one sequence, what is computed for many steps at once may hold so many bytes; longer sequences
# are cut into pieces, each computed ahead by itself. Batches multiply it.
MOST_BYTES = 2**24
# On an accelerator each turn of a loop waits for its launch: bodies with one or two products are
# written out several times, to so many products a turn. Longer ones gain nothing by it, and take
# longer to compile (`benchmarks/NOTES.md`).
UNROLLED_PRODUCTS = 8


def scan_ahead(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    reverse: bool = False,
    gradients_behind: bool = False,
    has_gradient: bool = True,
) -> tuple[Any, Any]:
    """Compute `jax.lax.scan(step, init, xs)`, looping over no more than has to wait.

    The numbers are those of the plain loop up to rounding: products of many steps at once may be
    summed in another order. A step with effects is not taken apart.

    With `gradients_behind` the gradients of the matrices that the loops multiply by are computed
    for all steps at once, too; it is for functions that are differentiated in reverse mode alone.
    Of a loop that is not differentiated at all, say `has_gradient=False`: its products are fewer
    then, since what is cut from the gradient is multiplied together with what it was cut from.
    """
    init, xs = jax.tree.map(jnp.asarray, (init, xs))
    init = strong(init)
    length = jax.tree.leaves(xs)[0].shape[0]
    if length == 0:  # nothing to take apart, but the shapes of what there would be
        return jax.lax.scan(step, init, xs, reverse=reverse)
    if length == 1:
        last, y = step(init, jax.tree.map(lambda leaf: leaf[0], xs))
        return strong(last), jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], y)

    traced = trace(step, init, xs, has_gradient=has_gradient)
    if traced is None:
        return jax.lax.scan(step, init, xs, reverse=reverse)
    jaxpr, consts, structure = traced
    plan = StagePlan(jaxpr, len(consts), len(jax.tree.leaves(init)))
    most = MOST_BYTES // max(plan.num_bytes, 1)
    if most < 2:
        return jax.lax.scan(step, init, xs, reverse=reverse)
    flat = jax.tree.leaves(init), jax.tree.leaves(xs)
    last, ys = _in_pieces(
        plan,
        consts,
        *flat,
        _piece_size(length, most),
        reverse=reverse,
        gradients_behind=gradients_behind,
    )
    return jax.tree.unflatten(structure, [*last, *ys])


def _in_pieces(
    plan: StagePlan,
    consts: list[Any],
    init: list[Any],
    xs: list[Any],
    size: int,
    *,
    reverse: bool,
    **options: Any,
) -> tuple[list[Any], list[Any]]:
    """Execute the plan on pieces of `size` steps, one after another."""
    length = xs[0].shape[0]

    def piece(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        return _execute(plan, consts, carry, xs, reverse=reverse, **options)

    if size == length:
        return piece(init, xs)
    count, rest = divmod(length, size)
    # The odd piece is the last in the order of the loop.
    whole = slice(rest, None) if reverse else slice(0, length - rest)
    odd = slice(0, rest) if reverse else slice(length - rest, None)
    cut = [leaf[whole].reshape(count, size, *leaf.shape[1:]) for leaf in xs]
    carry, ys = jax.lax.scan(piece, init, cut, reverse=reverse)
    ys = [leaf.reshape(count * size, *leaf.shape[2:]) for leaf in ys]
    if rest:
        carry, others = piece(carry, [leaf[odd] for leaf in xs])
        pairs = zip(others, ys, strict=True) if reverse else zip(ys, others, strict=True)
        ys = [jnp.concatenate(pair) for pair in pairs]
    return carry, ys


def _piece_size(length: int, most: int) -> int:
    """The longest piece allowed, or one not much shorter that leaves no rest."""
    if length <= most:
        return length
    divisors = [size for size in range(most, most // 2, -1) if length % size == 0]
    return divisors[0] if divisors else most


def _execute(
    plan: StagePlan,
    consts: list[Any],
    init: list[Any],
    xs: list[Any],
    *,
    reverse: bool,
    gradients_behind: bool,
) -> tuple[list[Any], list[Any]]:
    length = xs[0].shape[0]
    values: dict[Var, Any] = dict(zip([*plan.consts, *plan.xs], [*consts, *xs], strict=True))
    values.update((plan.carry[i], init[i]) for i in plan.constant)
    last = dict(enumerate(init))

    def read(atom: Var | Literal) -> Any:
        """The values of all steps."""
        value = atom.val if isinstance(atom, Literal) else values[atom]
        if isinstance(atom, Var) and atom not in plan.fixed:
            return value
        return jnp.broadcast_to(value, (length, *jnp.shape(value)))

    for stage in plan.stages:
        _compute(plan, stage.ahead, values)
        for leaf in stage.shifted:
            before, last[leaf] = _shifted(
                init[leaf], *map(read, plan.sources(leaf)), reverse=reverse
            )
            values[plan.carry[leaf]] = before
        if stage.loop is not None:
            body = Body(plan, stage.loop, gradients_behind=gradients_behind)
            first = [init[leaf] for leaf in stage.loop.leaves]
            unroll = min(_unroll(num_products(stage.loop.equations)), length)
            carry, kept = body.scan(values, first, length=length, reverse=reverse, unroll=unroll)
            last.update(zip(stage.loop.leaves, carry, strict=True))
            values.update(zip(stage.loop.kept, kept, strict=True))
            for leaf in stage.loop.derived:
                sources = map(read, plan.sources(leaf))
                values[plan.carry[leaf]], _ = _shifted(init[leaf], *sources, reverse=reverse)
    return [last[i] for i in range(len(init))], [read(atom) for atom in plan.ys]


def _unroll(num_products: int) -> int:
    """How many steps a turn of a loop with so many products a step makes."""
    if jax.default_backend() == "cpu":
        return 1
    return max(UNROLLED_PRODUCTS // max(num_products, 1), 1)


def _shifted(first: Any, *sources: Any, reverse: bool) -> tuple[Any, Any]:
    """What a leaf is before each step, and after the last, given what it is made of.

    That is its value after each step; or a mask and a value, which it takes where the mask holds.
    """
    if reverse:
        before, last = _shifted(first, *(source[::-1] for source in sources), reverse=False)
        return before[::-1], last
    *masks, after = sources
    every = jnp.concatenate([first[None], after])
    if masks:
        steps = jnp.arange(1, len(after) + 1)
        taken = jax.lax.cummax(jnp.where(masks[0], steps, 0))
        every = every[jnp.concatenate([jnp.zeros_like(taken, shape=1), taken])]
    return every[:-1], every[-1]


def _compute(plan: StagePlan, equations: list[JaxprEqn], values: dict[Var, Any]) -> None:
    """Add the results of the equations, for all steps at once, to the values."""
    evaluate(plan, [eqn for eqn in equations if eqn.outvars[0] in plan.fixed], values)
    moving = [eqn for eqn in equations if eqn.outvars[0] not in plan.fixed]
    evaluate(plan, moving, values, is_moving=lambda variable: variable not in plan.fixed)
