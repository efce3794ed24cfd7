"""The equations of a traced step, with called functions written out."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend.core import (
    ClosedJaxpr,  # pyright: ignore[reportPrivateImportUsage]  (JAX 0.12 has it, its types do not)
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
# What they compute is what they are given.
CUTS = frozenset({"stop_gradient"})
# For many steps at once these are much faster than in a loop.
PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})


def trace(
    step: Callable[..., Any], init: Any, xs: Any, *, has_gradient: bool
) -> tuple[Jaxpr, list[Any], Any] | None:
    """The equations of a step as a function of (constants, carry, x), the constants, its result.

    An equation that stands there twice is listed once; and what is cut from a gradient that nobody
    takes, unless it `has_gradient`, is as good as what it was cut from. None where the step must be
    left as it is: it has effects, or changes the type of its carry, which `lax.scan` knows how to
    refuse.
    """

    def strong_step(carry: Any, x: Any) -> Any:
        carry, y = step(carry, x)
        return strong(carry), y

    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), xs)
    closed, shapes = jax.make_jaxpr(strong_step, return_shape=True)(init, x)
    if closed.effects or _types(init) != _types(shapes[0]):
        return None

    constants = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    own: dict[Var, Var | Literal] = {v: v for v in (*constants, *closed.jaxpr.invars)}
    skipped = CALLS if has_gradient else CALLS | CUTS
    equations, outputs = _written_out(closed.jaxpr, own, constants, skipped, {})
    jaxpr = closed.jaxpr.replace(
        constvars=[],
        invars=[*constants, *closed.jaxpr.invars],
        outvars=outputs,
        eqns=equations,
    )
    return jaxpr, list(constants.values()), jax.tree.structure(shapes)


def _written_out(
    jaxpr: Jaxpr,
    names: dict[Var, Var | Literal],
    constants: dict[Var, Any],
    skipped: frozenset[str],
    known: dict[Any, list[Var]],
) -> tuple[list[JaxprEqn], list[Var | Literal]]:
    """List the equations with called functions written out, so that each stands alone; the results.

    `names` are what the variables are called from now on: a function that is called twice has two
    sets of them. What functions bring along is added to the `constants`, and the results of the
    equations to those that are `known`. Of the primitives that are `skipped` no equation is left.
    """
    equations: list[JaxprEqn] = []

    def read(atom: Var | Literal) -> Var | Literal:
        return atom if isinstance(atom, Literal) else names[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if equation.primitive.name not in skipped:
            same = _identity(equation, inputs)
            outputs = known.get(same)
            if outputs is None:
                outputs = [Var(array_type(variable)) for variable in equation.outvars]
                equations.append(equation.replace(invars=inputs, outvars=outputs))
                if same is not None:
                    known[same] = outputs
        elif equation.primitive.name in CUTS:
            outputs = inputs
        else:
            inner = equation.params["jaxpr"]
            brought = [Var(array_type(variable)) for variable in inner.jaxpr.constvars]
            constants.update(zip(brought, inner.consts, strict=True))
            given = [*inner.jaxpr.constvars, *inner.jaxpr.invars]
            called = dict(zip(given, [*brought, *inputs], strict=True))
            more, outputs = _written_out(inner.jaxpr, called, constants, skipped, known)
            equations += more
        names.update(zip(equation.outvars, outputs, strict=True))
    return equations, [read(atom) for atom in jaxpr.outvars]


def _identity(equation: JaxprEqn, inputs: list[Var | Literal]) -> Any:
    """What two equations share that compute the same; None where that cannot be told."""
    if equation.effects or any(isinstance(atom, Literal) for atom in inputs):
        return None
    try:
        found = equation.primitive, *inputs, *sorted(equation.params.items())
        hash(found)
    except TypeError:
        return None
    return found


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
