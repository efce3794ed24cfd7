"""Which preset an experiment on the command line begins from: the one given, or a suitable one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from varfilter.cli.options import Target, given_option


def with_preset_given(target: Target, words: Sequence[str]) -> Target:
    """The target by the preset that was given; without one, by what suits its data and the device.

    A run that is resumed keeps its own settings, and so does one that is already where this one is
    to go, if it is on the same data.
    """
    from varfilter.experiments.paper import own_experiment
    from varfilter.experiments.presets import PRESETS, with_preset

    given = given_option(words, "--preset")
    if given is not None and given not in PRESETS:
        return target  # which the parser refuses, in its own words
    if target.run is not None:
        own = target.run.experiment.preset
        if given not in (None, own):
            raise ValueError(
                f"`--preset {given}` cannot be given to a run that goes on: {str(target.out)!r} was"
                f" begun by that of {own}, and keeps its settings. Leave it out, or begin another"
                " run with another `--out`."
            )
        return target
    if not target.is_own:
        if given in (None, target.experiment.preset):
            return target
        small = with_preset(target.experiment, given)
        small = replace(small, name=f"{small.name}-{given}")
        return Target(small, target.out.with_name(f"{target.out.name}-{given}"))
    source = target.experiment.data
    preset = given or _of_run_there(target, words) or _suitable(source, words)
    return replace(target, experiment=own_experiment(source, preset))


def _of_run_there(target: Target, words: Sequence[str]) -> str | None:
    """The preset of the run on these data that this command goes on with, if it is there."""
    from varfilter.runs.folder import is_run
    from varfilter.runs.run import Run
    from varfilter.runs.several import seed_folder, seeds_in

    out = Path(given_option(words, "--out") or target.out).expanduser()
    if seeds := seeds_in(out):
        out = seed_folder(out, seeds[0])
    if not is_run(out):
        return None
    experiment = Run.load(out).experiment
    is_same = experiment.data.source == target.experiment.data.source
    return experiment.preset if is_same else None


def _suitable(source: Any, words: Sequence[str]) -> str:
    import jax

    from varfilter.experiments.paper import EXPERIMENTS
    from varfilter.experiments.presets import suitable_preset
    from varfilter.media import medium_named

    medium = medium_named(source.medium)
    like, path = EXPERIMENTS[medium.experiment], Path(source.source)
    if {"-h", "--help"} & set(words):
        return "small"
    # Devices must not be looked at before the processes know of each other.
    platform = "gpu" if "--distributed" in words else jax.default_backend()
    files = path.rglob("*") if path.is_dir() else (path,)
    num_recordings = sum(file.suffix.lower() in medium.suffixes for file in files)
    return suitable_preset(like, platform, num_recordings)
