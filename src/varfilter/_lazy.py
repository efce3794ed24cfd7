"""Packages whose names are imported when they are first asked for.

`import varfilter` should not wait for jax, nor should a table for the readers of sound and video.
What a package offers is written once, in the `__init__.pyi` beside its `__init__.py`, as ordinary
imports: type checkers and editors read it as it stands, and this module reads it at run time.
(The library `lazy-loader` does the same; it would be one more dependency for these lines.)
"""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package, from its `__init__.pyi`."""
    module = sys.modules[package]
    assert module.__file__ is not None
    stub = Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    homes = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, own_name = homes[name]
        value = getattr(importlib.import_module(home), own_name)
        setattr(module, name, value)  # asked for once
        return value

    names = sorted(homes)
    return __getattr__, lambda: sorted({*names, *vars(module)}), names
