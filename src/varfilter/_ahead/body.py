"""What is left in a loop: its equations, with the products of one operand computed as one."""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, Var

from varfilter._ahead.equations import array_type, function_of, num_bytes, variables_of
from varfilter._ahead.stages import Loop, StagePlan

# Larger arrays are stored as they are: copying them costs more than another kernel.
MOST_JOINED_BYTES = 2**14
# On an accelerator the columns of a long matrix, of more than the second number, are a multiple of
# the first: XLA splits long sums among several blocks, and else would pad it at each step.
COLUMNS, MOST_UNSPLIT = 16, 128


def evaluate(
    plan: StagePlan,
    equations: list[JaxprEqn],
    values: dict[Var, Any],
    is_moving: Callable[[Var], bool] | None = None,
) -> None:
    """Add the results of the equations to the values.

    What `is_moving` has time as its first axis, and so have the results.
    """
    if not equations:
        return
    outputs = [variable for equation in equations for variable in equation.outvars]
    used = {variable for equation in equations for variable in variables_of(equation.invars)}
    inputs = plan.in_order(used.difference(outputs))
    function = function_of(plan.jaxpr, equations, inputs, outputs)
    if is_moving is not None:
        function = jax.vmap(function, [0 if is_moving(variable) else None for variable in inputs])
    results = function(*(values[variable] for variable in inputs))
    values.update(zip(outputs, results, strict=True))


class Body:
    """One loop of a plan.

    The products W_1 x, W_2 x, ... of fixed matrices with one operand are computed as one product
    with a taller matrix, and what is kept of a step is stored as one array: fewer, larger kernels.
    On an accelerator the matrices are made ready for it ahead of the loop, with columns of zeros.

    In reverse mode a loop adds each step's part of a matrix's gradient to what it has of it so
    far: as much memory as the matrix has, read and written at each step. With `gradients_behind`
    the loop keeps the two factors of that part instead, and the gradient is one product of those
    of all steps. The loop has no forward mode then.
    """

    def __init__(self, plan: StagePlan, loop: Loop, *, gradients_behind: bool):
        self._plan = plan
        self._loop = loop
        self._carry = [plan.carry[leaf] for leaf in loop.leaves]
        self._is_padded = jax.default_backend() != "cpu"
        is_each = gradients_behind or self._is_padded
        self._products = _products(loop, at_least=1 if is_each else 2)
        self._gradients_behind = gradients_behind

    def scan(
        self, values: dict[Var, Any], first: list[Any], **options: Any
    ) -> tuple[list[Any], list[Any]]:
        """Carry out the loop, given the values outside of it: (the last carry, what is kept)."""
        fixed = [values[variable] for variable in self._loop.fixed]
        scanned = [values[variable] for variable in self._loop.scanned]
        matrices = [
            self._joined([each.rows(values[each.matrix]) for each in together])
            for together in self._products
        ]
        if self._gradients_behind and matrices:
            return self._scan_without_gradients(matrices, (fixed, first, scanned), options)

        def step(carry: list[Any], scanned: list[Any]) -> tuple[list[Any], list[Any]]:
            after, kept, _ = self._step(fixed, matrices, carry, scanned, None)
            return after, kept

        last, kept = jax.lax.scan(step, first, scanned, **options)
        return last, self._unpacked(kept)

    def _joined(self, matrices: list[Any]) -> Any:
        """One matrix with the rows of all of them."""
        joined = jnp.concatenate(matrices)
        is_long = joined.shape[1] > MOST_UNSPLIT
        extra = -joined.shape[1] % COLUMNS if self._is_padded and is_long else 0
        return jnp.pad(joined, ((0, 0), (0, extra))) if extra else joined

    def _scan_without_gradients(
        self, matrices: list[Any], inputs: Any, options: dict[str, Any]
    ) -> tuple[list[Any], list[Any]]:
        """Carry out the loop, whose gradient in the matrices is computed behind it."""

        def tapped(matrices: list[Any], inputs: Any, taps: list[Any]) -> Any:
            """Add `taps`, which are zero, to the products, so that they have a gradient."""
            fixed, first, scanned = inputs

            def step(carry: list[Any], scanned_and_taps: Any) -> Any:
                after, kept, operands = self._step(fixed, matrices, carry, *scanned_and_taps)
                return after, (kept, operands)

            last, (kept, operands) = jax.lax.scan(step, first, (scanned, taps), **options)
            return (last, self._unpacked(kept)), operands

        def zeros() -> list[Any]:
            shapes = [_product_shape(together) for together in self._products]
            return [jnp.zeros((options["length"], *s.shape), s.dtype) for s in shapes]

        @jax.custom_vjp
        def scan(matrices: list[Any], inputs: Any) -> Any:
            return tapped(matrices, inputs, zeros())[0]

        def forward(matrices: list[Any], inputs: Any) -> Any:
            found, pull, operands = jax.vjp(
                functools.partial(tapped, matrices), inputs, zeros(), has_aux=True
            )
            return found, (pull, operands, matrices)

        def backward(kept: Any, cotangents: Any) -> Any:
            pull, operands, matrices = kept
            inputs, taps = pull(cotangents)
            return [
                jax.linear_transpose(
                    lambda matrix, many=many, together=together: jax.vmap(
                        lambda one: _multiply(together, matrix, one)
                    )(many),
                    matrix,
                )(tap)[0]
                for matrix, many, tap, together in zip(
                    matrices, operands, taps, self._products, strict=True
                )
            ], inputs

        scan.defvjp(forward, backward)
        return scan(matrices, inputs)

    def _step(
        self,
        fixed: list[Any],
        matrices: list[Any],
        carry: list[Any],
        scanned: list[Any],
        taps: list[Any] | None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """The carry after a step, what is kept of it, and the operands of its products."""
        plan, loop = self._plan, self._loop
        inputs = [*loop.fixed, *self._carry, *loop.scanned]
        now: dict[Var, Any] = dict(zip(inputs, [*fixed, *carry, *scanned], strict=True))
        # A product stands where the first of its equations stood.
        first = {id(together[0].equation): n for n, together in enumerate(self._products)}
        others = {id(each.equation) for together in self._products for each in together[1:]}
        waiting: list[JaxprEqn] = []
        for equation in loop.equations:
            if id(equation) in first:
                evaluate(plan, waiting, now)
                waiting = []
                number = first[id(equation)]
                together = self._products[number]
                product = _multiply(together, matrices[number], now[together[0].operand])
                if taps is not None:
                    product = product + taps[number]
                axis, outputs = together[0].axis, [each.result for each in together]
                ends = list(
                    itertools.accumulate(array_type(variable).shape[axis] for variable in outputs)
                )
                parts = jnp.split(product, ends[:-1], axis)
                now.update(zip(outputs, parts, strict=True))
            elif id(equation) not in others:
                waiting.append(equation)
        evaluate(plan, waiting, now)
        after = [
            atom.val if isinstance(atom, Literal) else now[atom]
            for atom in (plan.after[leaf] for leaf in loop.leaves)
        ]
        operands = [now[together[0].operand] for together in self._products]
        return after, self._packed([now[variable] for variable in loop.kept]), operands

    def _packed(self, kept: list[Any]) -> list[Any]:
        """Join what is kept of a step: one array to be stored, instead of many."""
        groups = self._packs()
        return [
            kept[group[0]]
            if len(group) == 1
            else jnp.concatenate([jnp.ravel(kept[number]) for number in group])
            for group in groups
        ]

    def _unpacked(self, packed: list[Any]) -> list[Any]:
        """Take apart what was joined, of all steps."""
        kept: dict[int, Any] = {}
        for group, array in zip(self._packs(), packed, strict=True):
            if len(group) == 1:
                kept[group[0]] = array
                continue
            avals: list[Any] = [self._loop.kept[number].aval for number in group]
            ends = list(itertools.accumulate(math.prod(aval.shape) for aval in avals))
            for number, aval, part in zip(
                group, avals, jnp.split(array, ends[:-1], axis=1), strict=True
            ):
                kept[number] = part.reshape(len(part), *aval.shape)
        return [kept[number] for number in range(len(kept))]

    def _packs(self) -> list[list[int]]:
        """Which of what is kept is joined: small arrays of floats, by their type."""
        groups: dict[Any, list[int]] = {}
        for number, variable in enumerate(self._loop.kept):
            dtype: Any = array_type(variable).dtype
            is_small = num_bytes(variable) <= MOST_JOINED_BYTES
            is_joined = is_small and jnp.issubdtype(dtype, jnp.floating)
            groups.setdefault(dtype if is_joined else number, []).append(number)
        return list(groups.values())


@dataclass(frozen=True)
class Product:
    """An equation that multiplies a fixed matrix, over its columns or its rows, with an operand.

    `summed` are the axes of the matrix and of the operand that the sum goes over, and `axis` is
    that of the result along which the other axis of the matrix lies.
    """

    equation: JaxprEqn
    matrix: Var
    operand: Var
    summed: tuple[int, int]
    axis: int

    def rows(self, matrix: Any) -> Any:
        """The matrix whose columns the sum goes over."""
        return matrix if self.summed[0] == 1 else matrix.T

    @property
    def result(self) -> Var:
        """What the equation computes."""
        return self.equation.outvars[0]

    def is_like(self, other: "Product") -> bool:
        """Whether both can be computed as one product."""
        return self.equation.params == other.equation.params and self.axis == other.axis


def _products(loop: Loop, *, at_least: int) -> list[list[Product]]:
    """The products of fixed matrices with one operand, each group of them by itself."""
    fixed = {*loop.fixed}
    groups: dict[Any, list[Product]] = {}
    for equation in loop.equations:
        product = _product(equation, fixed)
        if product is not None:
            key = product.operand, array_type(product.matrix).dtype
            group = groups.setdefault(key, [])
            if not group or group[0].is_like(product):
                group.append(product)
    return [group for group in groups.values() if len(group) >= at_least]


def _product(equation: JaxprEqn, fixed: set[Var]) -> Product | None:
    """The equation as a product with a fixed matrix, on whichever side that is; None for others."""
    if equation.primitive is not jax.lax.dot_general_p:
        return None
    contracted, batch = equation.params["dimension_numbers"]
    factors = [atom for atom in equation.invars if not isinstance(atom, Literal)]
    if any(batch) or len(factors) < 2:
        return None
    for side, axis in ((0, 0), (1, -1)):
        matrix, operand = factors[side], factors[1 - side]
        summed = contracted[side], contracted[1 - side]
        if matrix in fixed and len(array_type(matrix).shape) == 2 and len(summed[0]) == 1:
            return Product(equation, matrix, operand, (summed[0][0], summed[1][0]), axis)
    return None


def _multiply(together: list[Product], matrix: Any, operand: Any) -> Any:
    """Multiply by the matrices of these equations, which are joined in `matrix`.

    The operand comes first: under `vmap` the rows of the result are then those of the batch, as all
    that follows reads them. Behind the matrix, a batch would lie along the columns, and an
    accelerator would read what it needs of each sequence from all over the memory.
    """
    like = together[0]
    axis = like.summed[1]
    extra = matrix.shape[1] - operand.shape[axis]
    if extra:
        operand = jnp.pad(operand, [(0, extra * (i == axis)) for i in range(operand.ndim)])
    params = like.equation.params | {"dimension_numbers": (((axis,), (1,)), ((), ()))}
    product = jax.lax.dot_general_p.bind(operand, matrix, **params)
    return jnp.moveaxis(product, -1, like.axis)


def _product_shape(together: list[Product]) -> Any:
    types = [array_type(each.result) for each in together]
    axis, shape = together[0].axis, list(types[0].shape)
    shape[axis] = sum(each.shape[axis] for each in types)
    return jax.ShapeDtypeStruct(tuple(shape), types[0].dtype)
