"""Optax under strict type promotion."""

from typing import Any

import jax
import optax


def descend(
    optimizer: optax.GradientTransformation, gradient: Any, state: Any, parameters: Any
) -> tuple[Any, Any]:
    """(step to add to the parameters, optimizer state).

    Optax mixes integer counts with floats, which strict promotion (our tests, and the habit
    of careful users) refuses; the standard rules hold inside this call only.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return optimizer.update(gradient, state, parameters)
