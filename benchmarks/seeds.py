"""Several seeds in one program beside as many runs one after the other; and a whole validation.

`python benchmarks/seeds.py [--seeds 4] [--updates 20] [--music FOLDER] [--json FILE]`

For the `table` experiment on the sensors of `examples/data/`, and for `srnn-jsb-avf`, both of the
preset that `--preset` says: seconds of an update of each seed alone, and of all seeds in one
program, compiled before. `alone / stacked` is how many times faster the seeds are together. Both
are timed in turns, and the medians are printed. With `--music`, a folder that holds
`piano_midi_de.npz`, the validation part of that set is scored too, whole, by an untrained model.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from varfilter.experiments import experiment_named, own_experiment
from varfilter.experiments.presets import with_preset
from varfilter.media import load, source_of
from varfilter.training import HeldOut, fit, fit_stacked, stacked

SENSORS = Path(__file__).parent.parent / "examples" / "data" / "sensors.csv"


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--updates", type=int, default=20, help="in one dispatch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--preset", choices=("small", "paper"), default="small")
    parser.add_argument("--only", choices=("table", "music", "validation"), nargs="*")
    parser.add_argument("--music", type=Path, help="the folder of the sets of music")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wanted = given.only or ("table", "music", "validation")
    found: dict[str, Any] = {"device": jax.devices()[0].device_kind}
    if "table" in wanted:
        source = replace(source_of(SENSORS), sequence="run", time="time")
        found["table"] = measure(own_experiment(source, given.preset), given)
    if given.music is not None:
        if "music" in wanted:
            found["music"] = measure(music("jsb_chorales", given), given)
        if "validation" in wanted:
            found["validation"] = validation(music("piano_midi_de", given), given)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


def music(name: str, given: argparse.Namespace) -> Any:
    """The experiment on a set of music that lies in the folder."""
    names = {"jsb_chorales": "srnn-jsb-avf", "piano_midi_de": "srnn-piano-avf"}
    experiment = experiment_named(names[name])
    if given.preset == "small":
        experiment = with_preset(experiment, "small")
    at = str((given.music / f"{name}.npz").resolve())
    return replace(experiment, data=replace(experiment.data, at=at))


def measure(experiment: Any, given: argparse.Namespace) -> dict[str, float]:
    """Seconds of an update of one seed alone, and of all of them in one program."""
    dataset = load(experiment.data)
    windows = experiment.windows(dataset)
    per_epoch = experiment.schedule.updates_per_epoch(windows.num_batches)
    seeds = [replace(experiment, seed=seed) for seed in range(given.seeds)]
    built = [each.build(dataset, per_epoch, can_be_stacked=True) for each in seeds]
    states = [each.learner.init(each.model, each.filter) for each in built]
    keys = [each.keys().train for each in seeds]
    options = {
        "num_updates": 10**9,
        "updates_per_dispatch": given.updates,
        "thinning": experiment.schedule.thinning(),
    }
    learners = stacked([each.learner for each in built])
    together = fit_stacked(learners, stacked(states), windows, jnp.stack(keys), **options)
    # One program for all seeds, as a run of each alone would compile one for itself.
    alone = fit(built[0].learner, states[0], windows, keys[0], **options)
    times: dict[str, list[float]] = {"alone": [], "stacked": []}
    for repeat in range(given.repeats + 1):
        for name, source in (("alone", alone), ("stacked", together)):
            begin = time.perf_counter()
            jax.block_until_ready(next(source).state)
            if repeat:  # the first compiles
                times[name].append((time.perf_counter() - begin) / given.updates)
    one, all_of_them = (statistics.median(times[name]) for name in ("alone", "stacked"))
    ratio = given.seeds * one / all_of_them
    print(
        f"{experiment.name}: an update alone {1e3 * one:.2f} ms, of {given.seeds} stacked"
        f" {1e3 * all_of_them:.2f} ms; alone / stacked {ratio:.2f}",
        flush=True,
    )
    return {"alone_s": one, "stacked_s": all_of_them, "ratio": ratio}


def validation(experiment: Any, given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one validation of all songs, of one seed and of all seeds stacked."""
    dataset = load(experiment.data)
    seeds = [replace(experiment, seed=seed) for seed in range(given.seeds)]
    built = [each.build(dataset) for each in seeds]
    keys = jnp.stack([each.keys().valid for each in seeds])
    held_out = HeldOut(dataset, split="valid")
    filters, models = stacked([(each.filter, each.model) for each in built])
    calls = {
        "one": lambda: held_out.evaluate(built[0].filter, built[0].model, keys[0]),
        "stacked": lambda: held_out.evaluate_stacked(filters, models, keys),
    }
    found: dict[str, Any] = {"longest": int(held_out.num_steps.max())}
    for name, call in calls.items():
        times = []
        for repeat in range(given.repeats + 1):
            begin = time.perf_counter()
            call()
            if repeat:
                times.append(time.perf_counter() - begin)
        found[name] = statistics.median(times)
    print(
        f"{experiment.name}: validation of {len(held_out.scored)} songs, the longest of"
        f" {found['longest']} steps: {found['one']:.3f} s; of {given.seeds} seeds"
        f" {found['stacked']:.3f} s",
        flush=True,
    )
    return found


if __name__ == "__main__":
    main()
