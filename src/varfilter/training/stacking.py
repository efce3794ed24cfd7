"""Optimizers whose numbers can be stacked, so that one program learns what several would.

What differs between learners that are stacked are arrays and numbers, never what is computed. A
learning rate inside an optax optimizer is out of reach; `numbered` puts it where it can be stacked.
"""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.tree_util import Partial

from varfilter._tree import as_array


def numbered(
    build: Callable[..., optax.GradientTransformation], *numbers: Any, **named: Any
) -> optax.GradientTransformation:
    """The optimizer `build(*numbers, **named)`, its numbers kept as arrays that can be stacked.

    `numbered(optax.adam, 1e-3)` learns as `optax.adam(1e-3)` does, and its state is the same.
    Learners that are stacked have the same `build`, which must not decide anything by the values;
    what it is to decide by (True, None, a function) is given as that.
    """
    arguments = jax.tree.map(as_array, (numbers, named))
    return optax.GradientTransformation(
        Partial(_init, build, *arguments), Partial(_update, build, *arguments)
    )


def _init(build: Any, numbers: Any, named: Any, parameters: Any) -> Any:
    return build(*numbers, **named).init(parameters)


def _update(
    build: Any, numbers: Any, named: Any, gradient: Any, state: Any, parameters: Any = None
) -> Any:
    return build(*numbers, **named).update(gradient, state, parameters)
