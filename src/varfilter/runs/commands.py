"""The commands that trained a run, as they were typed: a file of JSON lines in its folder.

They are apart from the run's record, which says what was trained and not how often it was called:
a run that was interrupted ends with the same record as one that was not.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from varfilter._files import append
from varfilter.devices import is_first_process
from varfilter.runs.folder import updates_made
from varfilter.runs.run import Run

COMMANDS = "commands.jsonl"


def keeping(
    words: Sequence[str], max_updates: int | None, runs: Sequence[Run]
) -> Callable[[], None]:
    """A function that keeps a command in the folders of its runs, when it is first called.

    It is to be called when the folders are held: until then they may be another process's. Of
    several processes the first alone writes.
    """
    steps = [updates_made(run.folder) for run in runs]
    is_kept = not words or not is_first_process()

    def keep() -> None:
        nonlocal is_kept
        if not is_kept:
            is_kept = True
            for run, step in zip(runs, steps, strict=True):
                line = {"words": list(words), "step": step, "max_updates": max_updates}
                append(run.folder / COMMANDS, json.dumps(line).encode() + b"\n")

    return keep


def kept_commands(folder: Path) -> list[dict[str, Any]]:
    """The commands in the order in which they came; none where nobody kept any.

    A line that was cut short is left out: nothing depends on it.
    """
    path = folder / COMMANDS
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            known = json.loads(line)
        except ValueError:
            continue
        if isinstance(known, dict) and isinstance(known.get("words"), list):
            found.append(known)
    return found


def last_budget(folder: Path) -> int | None:
    """The `--max-updates` of the last command; None where it had none, or is not known."""
    commands = kept_commands(folder)
    return commands[-1].get("max_updates") if commands else None
