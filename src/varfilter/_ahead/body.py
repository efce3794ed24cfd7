"""What is left in a loop: its equations, with the products of one operand computed as one."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, Var

from varfilter._ahead.equations import function_of, variables_of
from varfilter._ahead.stages import Loop, Plan


def evaluate(
    plan: Plan,
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
    with a taller matrix: fewer and larger kernels.
    """

    def __init__(self, plan: Plan, loop: Loop):
        self._plan = plan
        self._loop = loop
        self._carry = [plan.carry[leaf] for leaf in loop.leaves]
        self._products = _products(loop)

    def scan(
        self, values: dict[Var, Any], first: list[Any], *, length: int, **options: Any
    ) -> tuple[list[Any], list[Any]]:
        """Carry out the loop, given the values outside of it: (the last carry, what is kept)."""
        fixed = [values[variable] for variable in self._loop.fixed]
        scanned = [values[variable] for variable in self._loop.scanned]
        matrices = [
            jnp.concatenate([values[equation.invars[0]] for equation in together])
            for together in self._products
        ]

        def step(carry: list[Any], scanned: list[Any]) -> tuple[list[Any], list[Any]]:
            return self._step(fixed, matrices, carry, scanned)

        return jax.lax.scan(step, first, scanned, length=length, **options)

    def _step(
        self, fixed: list[Any], matrices: list[Any], carry: list[Any], scanned: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        plan, loop = self._plan, self._loop
        inputs = [*loop.fixed, *self._carry, *loop.scanned]
        now: dict[Var, Any] = dict(zip(inputs, [*fixed, *carry, *scanned], strict=True))
        # A product stands where the first of its equations stood.
        first = {id(together[0]): n for n, together in enumerate(self._products)}
        others = {id(equation) for together in self._products for equation in together[1:]}
        waiting: list[JaxprEqn] = []
        for equation in loop.equations:
            if id(equation) in first:
                evaluate(plan, waiting, now)
                waiting = []
                number = first[id(equation)]
                now.update(_product(self._products[number], matrices[number], now))
            elif id(equation) not in others:
                waiting.append(equation)
        evaluate(plan, waiting, now)
        after = [
            atom.val if isinstance(atom, Literal) else now[atom]
            for atom in (plan.after[leaf] for leaf in loop.leaves)
        ]
        return after, [now[variable] for variable in loop.kept]


def _products(loop: Loop) -> list[list[JaxprEqn]]:
    """The products of several fixed matrices with one operand, each group by itself."""
    fixed = {*loop.fixed}
    groups: dict[Any, list[JaxprEqn]] = {}
    for equation in loop.equations:
        if equation.primitive is not jax.lax.dot_general_p:
            continue
        matrix, operand = equation.invars
        (contracted, _), (batch, _) = equation.params["dimension_numbers"]
        is_matrix = not isinstance(matrix, Literal) and matrix in fixed
        if is_matrix and len(matrix.aval.shape) == 2 and tuple(contracted) == (1,) and not batch:
            group = groups.setdefault(id(operand), [])
            if not group or group[0].params == equation.params:
                group.append(equation)
    return [group for group in groups.values() if len(group) > 1]


def _product(together: list[JaxprEqn], matrix: Any, values: dict[Var, Any]) -> dict[Var, Any]:
    """Multiply by the matrices of these equations, which are joined in `matrix`."""
    (operand,) = {equation.invars[1] for equation in together}
    product = jax.lax.dot_general_p.bind(matrix, values[operand], **together[0].params)
    outputs = [equation.outvars[0] for equation in together]
    ends = list(itertools.accumulate(variable.aval.shape[0] for variable in outputs))
    return dict(zip(outputs, jnp.split(product, ends[:-1]), strict=True))
