"""Checks of single arguments: an error names the argument, what was got, and what to give."""

import difflib
import importlib
import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def require_positive(name: str, value: Any) -> int:
    """Return `value` as an int, and refuse what is not a positive whole number."""
    try:
        whole = operator.index(value)
    except TypeError:
        whole = 0
    if isinstance(value, bool | np.bool) or whole < 1:
        raise ValueError(f"`{name}` must be a whole number, at least 1; got {value!r}.")
    return whole


def require_input_size(input_size: Any) -> int:
    """Return the number of known inputs a step, and refuse what is no whole number from 0 on."""
    if isinstance(input_size, bool) or not isinstance(input_size, int) or input_size < 0:
        raise ValueError(
            f"`input_size` must be a whole number from 0 on; got {input_size!r}. It is how many"
            " known inputs each step has."
        )
    return input_size


def require_all_positive(**values: Any) -> None:
    """Refuse each argument that is not a positive whole number, by its name."""
    for name, value in values.items():
        require_positive(name, value)


def require_fraction(name: str, value: Any, reason: str) -> float:
    """Return `value` as a float in [0, 1]; `reason` says what it is a fraction of."""
    if not isinstance(value, float | int | np.number) or not 0.0 <= value <= 1.0:
        raise ValueError(f"`{name}` must lie in [0, 1]; got {value!r}. {reason}")
    return float(value)


def require_key(key: Any) -> None:
    """Refuse what is not a single typed random key."""
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        hint = " Old-style keys (`PRNGKey`) are plain numbers." if _is_old_key(key) else ""
        raise TypeError(
            f"`key` must be a random key, `jax.random.key(seed)`; got {kind(key)}.{hint}"
        )
    if key.shape != ():
        raise ValueError(
            f"`key` must be a single key; got shape {key.shape}. For a batch, vmap over keys."
        )


def require_optimizer(name: str, optimizer: Any, *, without: str | None = None) -> None:
    """Refuse what is no optax optimizer; None passes where `without` says what it does."""
    if without is not None and optimizer is None:
        return
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        none = f", or None {without}" if without is not None else ""
        raise TypeError(
            f"`{name}` must be an optax optimizer, e.g. `optax.adam(1e-3)`{none};"
            f" got {kind(optimizer)}."
        )


def require_weight(name: str, value: Any) -> jax.Array:
    """Return `value` as a scalar array, and refuse what is not finite or is negative."""
    if not isinstance(value, float | int | np.number | np.ndarray | jax.Array) or np.shape(value):
        raise TypeError(f"`{name}` must be one number; got {kind(value)}.")
    weight = jnp.asarray(value, dtype=jnp.result_type(float))
    if not isinstance(weight, Tracer) and not 0.0 <= float(weight) < np.inf:
        raise ValueError(f"`{name}` must be finite and not negative; got {float(weight)}.")
    return weight


def kind(value: Any) -> str:
    """Say what a value is, in few words, for an error message."""
    if isinstance(value, type):
        return f"the class `{value.__name__}` (an instance is needed)"
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array `{value.dtype}{list(value.shape)}`"
    if value is None or isinstance(value, bool | int | float | complex | str):
        text = repr(value)
        return f"`{text if len(text) <= 40 else text[:37] + '...'}`"
    return f"`{type(value).__name__}`"


def listed(names: list[str]) -> str:
    """Join names for the middle of a sentence, each once and in backticks."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def _is_old_key(key: Any) -> bool:
    return isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32


def require_library(module: str, *, extra: str) -> Any:
    """Import a module, or say which extra of varfilter brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs the library `{module}`, which is not installed ({error})."
            f" Install it with: pip install 'varfilter[{extra}]'."
        ) from None


def nearest(name: str, names: Iterable[str]) -> str:
    """` Did you mean ...?` with the nearest of the names, or nothing where none is near."""
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower().replace("_", "-"), by_lower, 1, 0.5)
    close = close or difflib.get_close_matches(name.lower(), by_lower, 1, 0.5)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""


def require_known_options(
    read: Callable[..., Any], options: dict[str, Any], *, has_place: bool = True
) -> None:
    """Raise an error if `read`, the function that reads a source, lacks one of the options."""
    # The first is the place to read from, which is no option.
    known = list(inspect.signature(read).parameters)[int(has_place) :]
    for option in options:
        if option not in known:
            raise TypeError(
                f"`{read.__name__}`, which reads this, has no option {option!r}; it has"
                f" {', '.join(known)}."
            )
