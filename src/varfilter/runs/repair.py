"""What is damaged in the folder of a run, put right from what is whole."""

import shutil
from pathlib import Path
from typing import Any

from varfilter._files import remove_abandoned
from varfilter._text import count
from varfilter.runs import calibration, forecasting
from varfilter.runs.folder import (
    BEST,
    CHECKPOINTS,
    METRICS,
    RECORD,
    held,
    is_intact,
    is_run,
    read_list,
    read_record,
    write_record,
    writing,
)
from varfilter.runs.metrics import salvage_metrics, write_lines
from varfilter.runs.run import Run
from varfilter.runs.starts import STARTS, are_starts
from varfilter.training.checkpoints import kept_checkpoints, read_manifest

# What is added to the name of a damaged file, which stays for those who want to look at it.
DAMAGED = ".damaged"


def repair_run(folder: str | Path) -> list[str]:
    """Put right what is damaged in the folder of a run; returns a sentence for each thing done.

    A damaged record is restored from the copy in the newest checkpoint that is whole; of damaged
    metrics the lines that are whole are kept; what validation can find again, such as starts,
    alarms and pools, is put out of the way. The damaged files stay, under another name.
    Checkpoints are not touched: training leaves damaged ones out by itself.
    """
    folder = Path(folder).expanduser()
    if not is_run(folder):
        raise FileNotFoundError(
            f"`folder` {str(folder)!r} is not the folder of a run, so there is nothing to repair."
        )
    with held(folder):
        for each in (folder, folder / CHECKPOINTS):
            remove_abandoned(each)
        manifests = {path: _manifest(path) for path in _checkpoints(folder)}
        done = [*_repair_record(folder, manifests), *_repair_metrics(folder)]
        done += [*_repair_starts(folder), *_repair_lists(folder)]
        bad = [reason for reason in manifests.values() if isinstance(reason, str)]
        return done + [f"Left as it is: {reason}" for reason in bad]


def _repair_record(folder: Path, manifests: dict[Path, dict[str, Any] | str]) -> list[str]:
    path = folder / RECORD
    try:
        Run.load(folder)
        return []
    except (ValueError, OSError) as error:
        reason = str(error)
        if path.exists() and is_intact(path.read_bytes()):  # but of a newer varfilter, say
            raise
    refused = []
    for source, manifest in manifests.items():
        if isinstance(manifest, str):
            refused.append(manifest)
        elif "record" not in manifest:
            refused.append(f"{source.name} has none, for version 0.1.0 kept none.")
        else:
            kept = _copy_of(path)
            write_record(folder, manifest["record"])
            Run.load(folder)
            return [f"{RECORD} was restored from the copy in {source.name}{kept}."]
    raise ValueError(
        f"{reason} But no good copy was found: {' '.join(refused) or 'there is no checkpoint.'}"
        " Restore another copy of the file itself."
    )


def _repair_metrics(folder: Path) -> list[str]:
    path = folder / METRICS
    found = salvage_metrics(path, need_checksums=read_record(folder)["version"] > 1)
    if not found.damaged:
        return []
    kept = _copy_of(path)
    with writing(path):
        write_lines(path, found.lines)
    numbers = ", ".join(map(str, found.damaged))
    return [
        f"{METRICS} has the {len(found.lines):,} of its {count(found.num_lines, 'line')} that were"
        f" whole; damaged: {numbers}{kept}."
    ]


def _checkpoints(folder: Path) -> list[Path]:
    """All files that may hold a copy of the record, the newest first."""
    best = [folder / BEST] if (folder / BEST).exists() else []
    return [path for _, path in kept_checkpoints(folder / CHECKPOINTS)] + best


def _manifest(path: Path) -> dict[str, Any] | str:
    """What a checkpoint's run says of itself, or why it cannot be read."""
    try:
        return read_manifest(path)
    except (ValueError, OSError) as error:
        return str(error)


def _repair_starts(folder: Path) -> list[str]:
    """Put damaged starts out of the way: they are found in the run's data again."""
    path = folder / STARTS
    if not path.exists() or are_starts(path):
        return []
    kept = _copy_of(path)
    with writing(path):
        path.unlink()
    return [f"{STARTS} was removed; it is made from the run's data again{kept}."]


def _repair_lists(folder: Path) -> list[str]:
    """Put damaged alarms and pools out of the way: validation finds them again."""
    done = []
    for each in (calibration, forecasting):
        path = folder / each.FILE
        try:
            read_list(path, each.ENTRY, each.VERSION)
        except ValueError:
            kept = _copy_of(path)
            with writing(path):
                path.unlink()
            done.append(f"{each.FILE} was removed; validation finds it again{kept}.")
    return done


def _copy_of(path: Path) -> str:
    """Copy a damaged file under another name; returns what to say of it."""
    if not path.exists():
        return ""
    other = path.with_name(path.name + DAMAGED)
    with writing(other):
        shutil.copyfile(path, other)
    return f"; what was there is kept as {other.name}"
