"""Where the things of a user lie."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder `varfilter` in the user's folder for caches, by the custom of the system."""
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "varfilter"
