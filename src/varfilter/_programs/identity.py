"""What a traced program depends on, written down so that two processes can compare it."""

import dataclasses
import functools
import hashlib
import importlib
import sys
import types
from collections.abc import Iterator
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

# Packages whose code is known by their versions, or, ours, by its files. What comes from elsewhere
# may have changed since the last start.
LIBRARIES = ("equinox", "jax", "jaxlib", "numpy", "optax")
KNOWN = frozenset({*LIBRARIES, "varfilter", "builtins", "functools", "math", "operator"})


class Unknown(Exception):
    """Something that another process could not recognise: a user's function, an open file."""


def digest(value: Any) -> str:
    """Name `value` by all that it is made of; equal names mean equal programs.

    Functions are known by their name, their code and what they enclose; arrays by their content.
    """
    hashed = hashlib.sha256(f"{_code()}\n{settings()}".encode())
    for part in _described(value, []):
        hashed.update(part.encode() + b"\0")
    return hashed.hexdigest()


def name_of(value: Any) -> str | None:
    """The name by which another process can import `value`; None if there is none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if module.partition(".")[0] not in KNOWN:
        return None
    return f"{module}:{name}" if _imported(module, name) is value else None


def value_named(name: str) -> Any:
    """What `name_of` has named."""
    module, _, path = name.partition(":")
    if module.partition(".")[0] not in KNOWN:
        raise Unknown(name)
    importlib.import_module(module)
    found = _imported(module, path)
    if found is None:
        raise Unknown(name)
    return found


def settings() -> str:
    """How JAX is set, and for which devices; where programs are kept says nothing of them."""
    known = sorted((name, value) for name, value in jax.config.values.items())
    # What a block of code sets for itself, `jax.enable_x64`, is not among the values.
    parts = [
        f"{name}={getattr(jax.config, name, value)!r}"
        for name, value in known
        if "cache" not in name
    ]
    parts += [f"{device.platform} {device.device_kind}" for device in jax.devices()]
    return "\n".join(parts)


@functools.cache
def _code() -> str:
    """All code that a program may be made by: the versions of libraries, and our own files."""
    parts = [sys.version, *(f"{library} {version(library)}" for library in LIBRARIES)]
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        parts.append(f"{path.relative_to(root)} {content}")
    return "\n".join(parts)


def _imported(module: str, name: str) -> Any:
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _described(value: Any, within: list[int]) -> Iterator[str]:
    """Write down `value`, part by part; `within` are those that it is a part of."""
    if id(value) in within:  # a function that encloses itself has no end
        raise Unknown(repr(value))
    within = [*within, id(value)]
    yield type(value).__qualname__
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.dtype):
        yield repr(value)
    elif isinstance(value, Enum):
        yield f"{_name_of_type(value)}.{value.name}"
    elif (name := name_of(value)) is not None:
        yield name
    elif isinstance(value, Tracer):
        raise Unknown("a traced array")
    elif isinstance(value, jax.Array | np.ndarray | np.generic):
        yield from _array(value)
    elif isinstance(value, jax.ShapeDtypeStruct):
        yield f"{value.shape} {value.dtype} {value.weak_type}"
    else:
        for part in _parts(value):
            yield from _described(part, within)
    yield "end"


def _parts(value: Any) -> Iterator[Any]:
    """What a value that has no name of its own is made of."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, tuple | list):
        if type(value) not in (tuple, list):
            yield _name_of_type(value)
        yield from tuple(value)
    elif isinstance(value, types.FunctionType):
        if value.__module__.partition(".")[0] not in KNOWN:
            raise Unknown(value.__module__)
        yield f"{value.__module__}:{value.__qualname__}"
        yield from (value.__code__, value.__defaults__, value.__kwdefaults__)
        yield from (cell.cell_contents for cell in value.__closure__ or ())
    elif isinstance(value, types.CodeType):
        # Where it stands in which version of its file tells it from others of its name.
        yield from (value.co_name, value.co_firstlineno, value.co_code, value.co_names)
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, jax.tree_util.PyTreeDef):
        yield value.unflatten(range(value.num_leaves))
    elif dataclasses.is_dataclass(value):
        yield _name_of_type(value)
        names = (field.name for field in dataclasses.fields(value))
        yield from ((name, getattr(value, name, None)) for name in names)
    elif type(value).__module__.partition(".")[0] == "varfilter" and hasattr(value, "__dict__"):
        yield _name_of_type(value)
        yield vars(value)
    else:
        raise Unknown(repr(type(value)))


def _array(value: Any) -> Iterator[str]:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield str(jax.random.key_impl(value))
        value = jax.random.key_data(value)
    content = np.ascontiguousarray(value)
    yield f"{content.shape} {content.dtype} {hashlib.sha256(content.tobytes()).hexdigest()}"


def _name_of_type(value: Any) -> str:
    name = name_of(type(value))
    if name is None:
        raise Unknown(repr(type(value)))
    return name
