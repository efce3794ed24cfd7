"""Checks at the border: every wrong input is refused before anything is compiled."""

import math
import numbers
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from varfilter import distributions
from varfilter._arguments import kind
from varfilter._arguments import require_key as require_key
from varfilter._tree import flat_size, once_per_signature
from varfilter.distributions import is_distribution, mean
from varfilter.model import AbstractModel, State

_ONE_DTYPE = (
    "Give one dtype, `jnp.result_type(float)`, to all floats that the model holds and that its"
    " functions make."
)


class FirstStep(NamedTuple):
    """The shapes of a model's first step: all that is needed to build a network to fit it."""

    state: State
    prior: Any
    emission: Any

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self.emission.shape

    @property
    def observation_size(self) -> int:
        """The number of elements of one observation."""
        return math.prod(self.observation_shape)

    @property
    def parameter_size(self) -> int:
        """The number of parameters of the prior, and so of a posterior of its structure."""
        return flat_size(self.prior)


def first_step(model: Any) -> FirstStep:
    """Find the shapes of a model's first step; nothing is computed.

    A model whose five functions do not agree with each other by their shapes is refused.
    """
    if not isinstance(model, AbstractModel):
        raise TypeError(
            f"`model` must derive from `varfilter.AbstractModel`; got {kind(model)}."
            " Write its five functions: init, embed, prior, emission, advance."
        )
    return _first_step(model)


def require_model(model: Any) -> None:
    """Refuse what is no model, or has functions that do not agree with each other."""
    first_step(model)


def observation_shape(model: AbstractModel) -> tuple[int, ...]:
    """The shape of one observation."""
    return first_step(model).observation_shape


@once_per_signature
def _first_step(model: AbstractModel) -> FirstStep:
    name = type(model).__name__
    state = _shape_of(f"{name}.init(None)", model.init, None)
    _require_arrays(f"{name}.init(None)", state)

    prior = _shape_of(f"{name}.prior(state)", model.prior, state)
    _require_distributions(f"{name}.prior", prior)
    z = _shape_of(f"{name}.prior(state).mean", mean, prior)
    log_prob = _shape_of(f"{name}.prior(state).log_prob(z)", distributions.log_prob, prior, z)
    _require_scalar(f"{name}.prior(state).log_prob(z)", log_prob)

    emission = _shape_of(f"{name}.emission(state, z)", model.emission, state, z)
    _require_distributions(f"{name}.emission", emission)
    if not is_distribution(emission):
        raise TypeError(
            f"`{name}.emission` must return one distribution over an array; got {kind(emission)}."
        )
    x = jax.ShapeDtypeStruct(emission.shape, jnp.result_type(float))
    log_prob = _shape_of(
        f"{name}.emission(state, z).log_prob(x)", distributions.log_prob, emission, x
    )
    _require_scalar(f"{name}.emission(state, z).log_prob(x)", log_prob)

    _require_inputs(model, state)
    features = _shape_of(f"{name}.embed(x)", model.embed, x)
    _require_state_kept(model, FirstStep(state, prior, emission), z, x, features)
    return FirstStep(state, prior, emission)


def _require_state_kept(
    model: AbstractModel, shapes: FirstStep, z: Any, x: Any, features: Any
) -> None:
    """Refuse a model whose state changes its structure, shapes or dtypes over time."""
    name = type(model).__name__
    state = shapes.state
    after = _shape_of(f"{name}.advance(state, z, features)", model.advance, state, z, features)
    conditioned = _shape_of(f"{name}.init(x0)", model.init, x)
    for call, other in (("advance(state, z, features)", after), ("init(x0)", conditioned)):
        if difference := tree_difference(state, other):
            raise TypeError(
                f"`{name}.{call}` must return a state like that of `{name}.init(None)`:"
                f" {difference}. A state keeps its structure, shapes and dtypes over time."
                + (f" {_ONE_DTYPE}" if _float_dtypes(other) - _float_dtypes(state) else "")
            )
    key = jax.eval_shape(lambda: jax.random.key(0))
    draw = _shape_of(f"{name}.prior(state).sample(key)", distributions.sample, shapes.prior, key)
    if not (unlike := tree_difference(z, draw)):
        return
    after = _shape_of(f"{name}.advance(state, z, features)", model.advance, state, draw, features)
    if difference := tree_difference(state, after):
        raise TypeError(
            f"A draw of `{name}.prior(state)`, whose parameters are {_dtypes(shapes.prior)}, is not"
            f" like its mean: {unlike}; and `{name}.advance(state, z, features)` then does not keep"
            f" the state: {difference}. Draw what has the shape of the mean. {_ONE_DTYPE}"
        )


def _require_inputs(model: AbstractModel, state: Any) -> None:
    """Refuse a model whose `drive` and `input_size` do not go together."""
    name, size = type(model).__name__, model.input_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise TypeError(f"`{name}.input_size` must be a whole number from 0 on; got {size!r}.")
    drives = type(model).drive is not AbstractModel.drive
    if size and not drives:
        raise TypeError(
            f"`{name}.input_size` is {size}, but it has no `drive(state, u)`, so that inputs would"
            " do nothing. Write it: fold u_t into the state, before z_t is predicted."
        )
    if not size:
        return
    u = jax.ShapeDtypeStruct((size,), jnp.result_type(float))
    after = _shape_of(f"{name}.drive(state, u)", model.drive, state, u)
    if difference := tree_difference(state, after):
        raise TypeError(
            f"`{name}.drive(state, u)` must return a state like that of `{name}.init(None)`:"
            f" {difference}. Give the state a place for the input from the start, e.g. zeros."
        )


def require_inputs(
    name: str, us: Any, model: AbstractModel, leading: tuple[int, ...]
) -> Float[Array, "... inputs"] | None:
    """Return the known inputs as floats of shape (*leading, inputs), or None without any.

    A model with inputs needs them at each step: a missing one is an error that says where.
    """
    size, model_name = model.input_size, type(model).__name__
    if us is None:
        if size:
            raise ValueError(
                f"`{name}` is missing: `{model_name}` has {size} known inputs a step. Give an array"
                f" of shape {(*leading, size)}."
            )
        return None
    if not size:
        raise ValueError(
            f"`{name}` was given, but `{model_name}` has no known inputs (its `input_size` is 0)."
            " Leave it out, or build the model with `input_size`."
        )
    array = as_observations(name, us)
    if array.shape != (*leading, size):
        raise ValueError(
            f"`{name}` must have shape {(*leading, size)}, {size} known inputs for each step of"
            f" `{model_name}`; got {array.shape}."
        )
    if not isinstance(array, Tracer):
        missing = np.argwhere(np.isnan(np.asarray(array)))
        if len(missing):
            place = ", ".join(map(str, missing[0]))
            raise ValueError(
                f"`{name}[{place}]` is missing (NaN), but inputs are known at every step. Fill it"
                " in, or observe it instead."
            )
    return array


def require_observations(
    name: str,
    xs: Any,
    model: AbstractModel,
    *,
    observed: Any = None,
    has_time: bool = True,
    complete: bool = False,
) -> Float[Array, "..."]:
    """Return observations of the model's shape as floats, unobserved elements as NaN."""
    event = observation_shape(model)
    array = as_observations(name, xs)
    shape = array.shape[1:] if has_time else array.shape
    if has_time and array.ndim > 0 and array.shape[0] == 0:
        raise ValueError(f"`{name}` is empty: a sequence needs at least one step.")
    if shape != event or (has_time and array.ndim == 0):
        wanted = ("time", *event) if has_time else event
        raise ValueError(
            f"`{name}` must have shape ({', '.join(map(str, wanted))}{',' * (len(wanted) == 1)})"
            f" for `{type(model).__name__}`; got {array.shape}."
            + (" For a batch of sequences, `jax.vmap` over the first axis." if has_time else "")
        )
    if observed is not None:
        hint = "For steps that do not exist use `mask`."
        array = jnp.where(as_booleans("observed", observed, array.shape, hint), array, jnp.nan)
    if complete:
        require_complete(name, array)
    return array


def as_observations(name: str, xs: Any) -> Float[Array, "..."]:
    """Make `xs` an array of floats; None becomes NaN, infinities are refused."""
    dtype = jnp.result_type(float)
    if not isinstance(xs, jax.Array):
        return jnp.asarray(as_numbers(name, xs, dtype))
    _require_real(name, xs.dtype)
    array = xs.astype(dtype)
    if not isinstance(array, Tracer):
        with jax.ensure_compile_time_eval():  # inside a user's `jit`, a constant is still known
            _require_no_infinity(name, xs, array)
    return array


def as_numbers(name: str, xs: Any, dtype: Any) -> np.ndarray:
    """Make `xs` a numpy array of `dtype`; None becomes NaN, and infinities are refused."""
    if xs is None:
        raise TypeError(f"`{name}` must be an array of numbers; got `None`.")
    try:
        array = np.asarray(xs)
    except ValueError:
        raise TypeError(
            f"`{name}` must be one array of numbers; got a {kind(xs)} whose parts differ in length."
            " Pad sequences of different lengths to one and give `mask`."
        ) from None
    if array.dtype == object:
        array = _without_none(name, xs, array)
    _require_real(name, array.dtype)
    if array.dtype.kind == "f" and array.dtype.itemsize > dtype.itemsize:
        with np.errstate(over="ignore"):  # what overflows is refused below
            cast = array.astype(dtype)
    else:
        cast = array.astype(dtype)
    _require_no_infinity(name, array, cast)
    return cast


def as_booleans(
    name: str, value: Any, shape: tuple[int, ...], hint: str
) -> Bool[Array, "..."] | np.ndarray:
    """Return `value` as booleans, and refuse those of another shape."""
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.shape != shape or array.dtype != bool:
        got = kind(value if array.dtype == object else array)
        raise ValueError(f"`{name}` must be booleans of shape {shape}; got {got}. {hint}")
    return array


def require_step_mask(mask: Any, num_steps: int) -> Bool[Array, " time"]:
    """Return a boolean for each step; all are True where no mask is given."""
    if mask is None:
        return jnp.ones((num_steps,), bool)
    hint = "It has one for each step; for single elements use NaN or `observed`."
    return jnp.asarray(as_booleans("mask", mask, (num_steps,), hint))


def require_complete(name: str, xs: Float[Array, "..."]) -> None:
    """Refuse missing elements, as far as they can be seen from here."""
    if isinstance(xs, Tracer):
        return
    with jax.ensure_compile_time_eval():  # inside a user's `jit`, a constant is still known
        is_incomplete = bool(jnp.isnan(xs).any())
    if is_incomplete:
        raise ValueError(
            f"`complete` promises that nothing is missing, but `{name}` holds NaN."
            " Give `complete=False`, and fill padded steps with any number."
        )


def mixed_dtypes(model: AbstractModel) -> str | None:
    """Say which functions of a model return floats of another dtype than x_t; None if none does."""
    shapes = first_step(model)
    wanted = str(jnp.result_type(float))
    name = type(model).__name__
    calls = {"init": shapes.state, "prior": shapes.prior, "emission": shapes.emission}
    others = [
        f"`{name}.{call}` returns {_dtypes(tree)}"
        for call, tree in calls.items()
        if _float_dtypes(tree) - {wanted}
    ]
    if not others:
        return None
    return f"`{name}` mixes dtypes: {', '.join(others)}, where x_t is {wanted}. {_ONE_DTYPE}"


def tree_difference(wanted: Any, got: Any) -> str | None:
    """Say where two trees of arrays differ in structure, shape or dtype; None if nowhere."""
    left = {_path(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(wanted)}
    right = {_path(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(got)}
    missing = [path for path in left if path not in right]
    extra = [path for path in right if path not in left]
    if missing or extra:
        texts = [f"no {path}" for path in missing[:1]] + [f"an extra {path}" for path in extra[:1]]
        return "got " + " and ".join(texts)
    if jax.tree.structure(wanted) != jax.tree.structure(got):
        return f"got {jax.tree.structure(got)}, wanted {jax.tree.structure(wanted)}"
    for path, old in left.items():
        new = right[path]
        if not hasattr(new, "dtype") or (old.shape, old.dtype) != (new.shape, new.dtype):
            text = f"{new.dtype}{list(new.shape)}" if hasattr(new, "dtype") else kind(new)
            return f"got {path} {text}, wanted {old.dtype}{list(old.shape)}"
    return None


def first_line(error: Exception) -> str:
    """The type and the first line of an exception, for the middle of a message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.:')}" if lines else type(error).__name__


def _shape_of(call: str, function: Any, *arguments: Any) -> Any:
    try:
        return eqx.filter_eval_shape(function, *arguments)
    except Exception as error:
        raise TypeError(
            f"`{call}` failed when called with the shapes the other functions return"
            f" ({first_line(error)})."
        ) from error


def _require_distributions(call: str, tree: Any) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_distribution)
    strange = [(path, leaf) for path, leaf in leaves if not is_distribution(leaf)]
    if leaves and not strange:
        return
    got = _described(tree)
    if strange and strange[0][0]:  # inside a tuple, a list, a dict
        path, leaf = strange[0]
        got = f"a {got} with {_described(leaf)} at {_path(path)}"
    elif not leaves and tree is not None:
        got = f"a {got} that holds none"
    raise TypeError(
        f"`{call}` must return a distribution, e.g. `Normal(mean, log_var)`; got {got}."
    )


def _require_arrays(call: str, tree: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            raise TypeError(
                f"`{call}` must return arrays; got {kind(leaf)} for {_path(path)}."
                " Wrap it: `jnp.asarray(...)`."
            )


def _require_scalar(call: str, value: Any) -> None:
    if getattr(value, "shape", None) != ():
        raise TypeError(f"`{call}` must be one number; got {_described(value)}. Sum over elements.")


def _without_none(name: str, xs: Any, array: np.ndarray) -> np.ndarray:
    try:
        if all(v is None or isinstance(v, numbers.Real | np.bool) for v in array.flat):
            return array.astype(float)  # None becomes NaN
        odd = next(v for v in array.flat if not isinstance(v, numbers.Real | None))
        text = f"{kind(odd)} among them"
    except OverflowError:
        text = "one beyond the range of floats"
    raise TypeError(f"`{name}` must be an array of numbers; got {kind(xs)} with {text}.")


def _require_real(name: str, dtype: Any) -> None:
    if dtype.kind in "fiub":  # the usual ones, quickly: a stream comes by here at each push
        return
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(
            f"`{name}` must hold real numbers (float, int or bool); got dtype {dtype}."
            " Convert it first."
        )


def _require_no_infinity(name: str, given: Any, cast: Any) -> None:
    numpy = np if isinstance(cast, np.ndarray) else jnp  # where the numbers are
    if numpy.isinf(cast).any():
        largest = jnp.finfo(cast.dtype).max
        what = "infinities" if numpy.isinf(given).any() else f"values beyond {largest:.3g}"
        raise ValueError(
            f"`{name}` holds {what}; numbers must be finite. NaN marks an unobserved element."
        )


def _described(value: Any) -> str:
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"an array `{value.dtype}{list(value.shape)}`"
    return kind(value)


def _dtypes(tree: Any) -> str:
    """Say which float dtypes a tree has, leaf by leaf where they differ."""
    if len(dtypes := _float_dtypes(tree)) == 1:
        return dtypes.pop()
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return " and ".join(f"{_path(path)} {leaf.dtype}" for path, leaf in leaves if _is_float(leaf))


def _float_dtypes(tree: Any) -> set[str]:
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree) if _is_float(leaf)}


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _path(path: Any) -> str:
    return f"`{jax.tree_util.keystr(path).lstrip('.')}`" if path else "array"
