"""The equations of a traced step, with called functions written out."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend.core import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    jaxpr_as_fun,
    jaxprs_in_params,
)

from varfilter._tree import strong

# Calls of a function that may as well be written out.
CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
# For many steps at once these are much faster than in a loop.
PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})


def trace(step: Callable[..., Any], init: Any, xs: Any) -> tuple[Jaxpr, list[Any], Any] | None:
    """The equations of a step as a function of (constants, carry, x), the constants, its result.

    None where the step must be left as it is: it has effects, or changes the type of its carry,
    which `lax.scan` knows how to refuse.
    """

    def strong_step(carry: Any, x: Any) -> Any:
        carry, y = step(carry, x)
        return strong(carry), y

    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), xs)
    closed, shapes = jax.make_jaxpr(strong_step, return_shape=True)(init, x)
    if closed.effects or _types(init) != _types(shapes[0]):
        return None

    def flat_step(consts: list[Any], inputs: list[Any]) -> list[Any]:
        return _inlined(closed.jaxpr, consts, inputs)

    flat = jax.make_jaxpr(flat_step)(closed.consts, jax.tree.leaves((init, x)))
    arguments = [*flat.jaxpr.constvars, *flat.jaxpr.invars]
    jaxpr = flat.jaxpr.replace(constvars=[], invars=arguments)
    return jaxpr, [*flat.consts, *closed.consts], jax.tree.structure(shapes)


def _inlined(jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Evaluate, with called functions written out, so that each of their equations stands alone."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))

    def read(atom: Var | Literal) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if equation.primitive.name in CALLS:
            inner = equation.params["jaxpr"]
            results = _inlined(inner.jaxpr, inner.consts, inputs)
        else:
            variables = variables_of(equation.invars)
            function = function_of(jaxpr, [equation], variables, equation.outvars)
            results = function(*(values[variable] for variable in variables))
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def function_of(
    jaxpr: Jaxpr,
    equations: Sequence[JaxprEqn],
    inputs: Sequence[Var],
    outputs: Sequence[Var | Literal],
) -> Callable[..., list[Any]]:
    """Make a function of some of the equations of `jaxpr`."""
    part = jaxpr.replace(
        constvars=[], invars=list(inputs), outvars=list(outputs), eqns=list(equations)
    )
    return jaxpr_as_fun(ClosedJaxpr(part, []))


def variables_of(atoms: Iterable[Any]) -> list[Var]:
    """The variables among the atoms, each once."""
    return list(dict.fromkeys(atom for atom in atoms if not isinstance(atom, Literal)))


def _types(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def array_type(variable: Var) -> Any:
    """The type of a variable, which has a shape and a dtype: all variables of a step are arrays."""
    return variable.aval


def num_bytes(variable: Var) -> int:
    """How much memory the value of a variable takes."""
    array = array_type(variable)
    return math.prod(array.shape) * array.dtype.itemsize


def num_products(equations: Iterable[JaxprEqn]) -> int:
    """How many products and convolutions there are in the equations, and inside of them."""
    inner = (part.eqns for equation in equations for part in jaxprs_in_params(equation.params))
    own = sum(equation.primitive.name in PRODUCTS for equation in equations)
    return own + sum(map(num_products, inner))
