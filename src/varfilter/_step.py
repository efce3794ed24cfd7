"""One step as a program: few arrays in, few arrays out, on the device that is the first to be done.

`Stream` calls it. Each array that goes in or comes out costs about a microsecond, which is why
those of a belief are joined; and to wake another thread costs more than a small step itself.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from varfilter._threefry import written_out
from varfilter.filtering import Belief, Kept, kept_of, step
from varfilter.filters.base import AbstractFilter
from varfilter.model import AbstractModel

T = TypeVar("T")

# The arrays of a model up to this size (in bytes) are made part of the program, which is compiled
# for each stream anyway; a larger one would only make it slow to compile.
MOST_CONSTANT_BYTES = 2**20
# What is joined is copied: larger arrays (in numbers) of a belief travel on their own.
LARGEST_JOINED = 2**12
# Of larger models (in bytes) a processor reads the parameters for longer than the half of a
# millisecond that a GPU takes to launch the kernels of a step: they are not tried on it.
LARGEST_ON_PROCESSOR = 2**23
# So many steps are timed on each device; the quickest of them counts, for what else a machine does
# only makes a step longer.
NUM_TIMED = 10


class Packing:
    """How the arrays of a tree are joined to few: the small ones of each dtype to one vector."""

    def __init__(self, leaves: list[jax.Array]):
        self.shapes = [leaf.shape for leaf in leaves]
        groups: dict[Any, list[int]] = {}
        for index, leaf in enumerate(leaves):
            alone = leaf.size > LARGEST_JOINED
            groups.setdefault(index if alone else leaf.dtype, []).append(index)
        self.groups = list(groups.values())

    def place(self, index: int) -> tuple[int, int]:
        """In which vector an array begins, and where."""
        group = next(group for group in self.groups if index in group)
        before = group[: group.index(index)]
        return self.groups.index(group), sum(math.prod(self.shapes[i]) for i in before)

    def joined(self, leaves: list[jax.Array]) -> list[jax.Array]:
        """Join the arrays."""
        return [jnp.concatenate([jnp.ravel(leaves[i]) for i in group]) for group in self.groups]

    def parted(self, joined: list[jax.Array]) -> list[jax.Array]:
        """Take them apart again."""
        leaves: list[Any] = [None] * len(self.shapes)
        for group, vector in zip(self.groups, joined, strict=True):
            ends = np.cumsum([math.prod(self.shapes[i]) for i in group])
            for i, part in zip(group, jnp.split(vector, ends[:-1]), strict=True):
                leaves[i] = part.reshape(self.shapes[i])
        return leaves


def in_a_loop(
    step: Callable[[Belief], tuple[Belief, Any]], belief: Belief, is_now: Bool[Array, ""]
) -> tuple[Belief, Any]:
    """Take a step inside of a loop of one turn, whose bits are then those of `run`.

    Of a step by itself a compiler fuses other sums than of one that is the body of a loop.
    That there is one turn must not be known to it, or it would write the loop out: `is_now` is
    True, but a compiler cannot tell.
    """
    step = jax.jit(step)  # traced once, for its shapes and for the loop
    _, found = jax.eval_shape(step, belief)

    def turn(state: tuple[Any, Belief, Any]) -> tuple[Any, Belief, Any]:
        return jnp.array(False), *step(state[1])

    first = is_now, belief, _zeros(found)
    return jax.lax.while_loop(lambda state: state[0], turn, first)[1:]


def on_one_core(function: Callable[[], T], is_now: Bool[Array, ""]) -> T:
    """Compute as a branch that is always taken, which a compiler for a processor cannot know.

    What stands at the outermost level of a program it hands out to threads, if it is more than some
    operations on more than 512 bytes; to wake these takes longer than a small step, and far longer
    where other programs are busy. What is in a branch or a loop is computed where it is called.
    """
    function = jax.jit(function)
    return jax.lax.cond(is_now, function, lambda: _zeros(jax.eval_shape(function)))


def _zeros(shapes: T) -> T:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


class CompiledStep:
    """A filter's step with a model, for one device; None is where JAX computes by itself.

    `call(fixed, joined, x, u)` returns the next belief, joined, and the arrays of what is kept,
    of which `unflatten` makes a tree. `joined` and `parted` turn a belief into what travels, and
    back.
    """

    def __init__(
        self,
        filter: AbstractFilter,
        model: AbstractModel,
        belief: Belief,
        key: PRNGKeyArray,
        kept: Kept,
        device: jax.Device | None,
    ):
        # Arrays that are put somewhere have to stay there; where JAX goes by itself, none are put.
        self.device = None if device == jax.local_devices()[0] else device
        leaves, self._tree = jax.tree.flatten(belief)
        packing = Packing(leaves)
        self._join, self._part = jax.jit(packing.joined), jax.jit(packing.parted)
        self._output_tree: Any = None  # known once the step is traced

        # Plain jit on flat lists of plain arrays: `eqx.filter_jit` would partition the modules
        # anew at each call, and a typed key leaves jit's fast path; either costs as much as a
        # small filter's step.
        arrays, static = eqx.partition((filter, model), eqx.is_array)
        fixed, fixed_tree = jax.tree.flatten(arrays)
        fixed.append(jax.random.key_data(key))
        key_impl = jax.random.key_impl(key)
        # A typed key that a model holds cannot be written out as an array.
        has_keys = any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in fixed)
        is_small = sum(leaf.nbytes for leaf in fixed) <= MOST_CONSTANT_BYTES
        is_constant = is_small and not has_keys
        constants = [np.asarray(leaf) for leaf in fixed] if is_constant else []
        self.fixed = [] if is_constant else self._placed(fixed)
        platform = jax.default_backend() if device is None else device.platform
        group_of_t, offset_of_t = packing.place(len(leaves) - 1)  # the last field of a `Belief`

        def flat_step(fixed: list, joined: list, x: Any, u: Any) -> tuple[list, list]:
            # What is computed of constants would be rounded by the compiler, in its own way.
            *fixed, key_data = jax.lax.optimization_barrier(constants) if is_constant else fixed
            filter, model = eqx.combine(jax.tree.unflatten(fixed_tree, fixed), static)
            key = jax.random.wrap_key_data(key_data, impl=key_impl)
            key = written_out(key) if platform == "cpu" else key

            def stepped(before: Belief) -> tuple[Belief, list]:
                after, filtered = step(filter, model, before, x, key, u=u)
                outputs, self._output_tree = jax.tree.flatten(kept_of(filtered, kept))
                return after, outputs

            # No belief has seen less than no steps.
            is_now = joined[group_of_t][offset_of_t] >= 0

            def pushed() -> tuple[list, list]:
                before = jax.tree.unflatten(self._tree, packing.parted(joined))
                after, outputs = in_a_loop(stepped, before, is_now)
                return packing.joined(jax.tree.leaves(after)), outputs

            return on_one_core(pushed, is_now) if platform == "cpu" else pushed()

        self.call = jax.jit(flat_step)

    def joined(self, belief: Belief) -> list[jax.Array]:
        """The arrays of a belief as few as they travel as, where the step is computed."""
        return self._placed(self._join(jax.tree.leaves(belief)))

    def parted(self, joined: list[jax.Array]) -> Belief:
        """The belief again, where JAX computes by itself."""
        leaves = self._part(joined)
        if self.device is not None:
            leaves = jax.device_put(leaves, jax.local_devices()[0])
        return jax.tree.unflatten(self._tree, leaves)

    def unflatten(self, outputs: list[jax.Array]) -> Any:
        """What is kept of a step."""
        return self._output_tree.unflatten(outputs)

    def _placed(self, arrays: list[jax.Array]) -> list[jax.Array]:
        return arrays if self.device is None else jax.device_put(arrays, self.device)


def contenders(filter: AbstractFilter, model: AbstractModel) -> list[jax.Device | None]:
    """The devices to try a step on: None alone, JAX's own choice, where there is no other.

    There is one where JAX has an accelerator: a small step takes a processor less time than the
    launches of its kernels take.
    """
    arrays = jax.tree.leaves(eqx.filter((filter, model), eqx.is_array))
    config: Any = jax.config
    is_told = config.jax_default_device is not None
    is_small = sum(leaf.nbytes for leaf in arrays) <= LARGEST_ON_PROCESSOR
    if is_told or not is_small or jax.default_backend() == "cpu":
        return [None]
    try:
        return [jax.local_devices(backend="cpu")[0], None]
    except RuntimeError:  # JAX was told to do without
        return [None]


def quickest(steps: Sequence[CompiledStep], belief: Belief, x: Any, u: Any) -> CompiledStep:
    """Compile the steps and return the one that takes the least time, by turns."""
    calls = [_call(step, belief, x, u) for step in steps]
    for call in calls:
        call()
    if len(calls) == 1:
        return steps[0]
    seconds = [math.inf] * len(calls)
    for _ in range(NUM_TIMED):
        for place, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            seconds[place] = min(seconds[place], time.perf_counter() - begin)
    return steps[seconds.index(min(seconds))]


def _call(step: CompiledStep, belief: Belief, x: Any, u: Any) -> Callable[[], Any]:
    joined = step.joined(belief)
    return lambda: jax.block_until_ready(step.call(step.fixed, joined, x, u))
