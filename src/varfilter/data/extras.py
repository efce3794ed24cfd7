"""Libraries that only some data need: imported where used, with the line that installs them."""

import importlib
from typing import Any


def require(module: str, *, extra: str) -> Any:
    """The module; or an error that says which extra of varfilter brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs the library `{module}`, which is not installed ({error})."
            f" Install it with: pip install 'varfilter[{extra}]'."
        ) from None
