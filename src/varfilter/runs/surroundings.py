"""What a run was made with: versions, the revision of the sources, the device."""

import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

from varfilter import __version__


def surroundings() -> dict[str, Any]:
    """What ran: versions, the revision of the sources where they are a checkout, the device."""
    return {
        "varfilter": __version__,
        "revision": _revision(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
    }


def _revision() -> str | None:
    here = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        is_ours = Path(git("rev-parse", "--show-toplevel")) in here.parents
        if not (is_ours and git("ls-files", __file__)):
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", str(here)) else "")
    except (OSError, subprocess.CalledProcessError):
        return None
