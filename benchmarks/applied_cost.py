"""What a step costs where a trained run filters new data, by the number of its trajectories.

    python benchmarks/applied_cost.py [--quick] [--json FILE] [SUBJECT ...]

For each medium, the program of `varfilter filter`: one chunk of steps, each predicted with two
quantiles and then filtered, by `applied_filter` with 1 (the paper's filter) to 256 trajectories;
of a table also a live line, which is a prediction and a push of a stream. All numbers of
trajectories take turns in one process, and the ratios are of one turn. Parameters are as they were
drawn, and all data but the table are random: time does not depend on either. `num_particles` of the
media (`media/base.py`) was chosen by these figures.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from measure import Race
from rich.console import Console

from varfilter import Stream, load
from varfilter.data import Dataset, Family, Ragged
from varfilter.distributions import Bernoulli, DiscretizedNormal
from varfilter.experiments import Experiment, SRNNSizes, SVGSizes, experiment_named, own_experiment
from varfilter.experiments.settings import AVF, FilterChoice
from varfilter.filtering import start
from varfilter.media import AbstractMedium, medium_of, source_of
from varfilter.prediction import predict, run_predictive
from varfilter.runs.applied import applied_filter

SENSORS = Path(__file__).parent.parent / "examples" / "data" / "sensors.csv"
COUNTS = (1, 8, 16, 32, 64, 128, 256)
LEVELS = (0.05, 0.95)
KEY = jax.random.key(0)
SMALL_SOUND = SRNNSizes(
    latent_size=64, recurrent_size=256, prior_size=128, decoder_size=128, num_decoder_layers=2
)
SMALL_VIDEO = SVGSizes(
    latent_size=32, code_size=64, recurrent_size=64, channels=(16, 32, 64, 128),
    convolutions=(1, 1, 1, 1),
)  # fmt: skip
SMALL_NETWORK = FilterChoice(AVF(hidden_size=128, num_layers=1))
SPEECH = Family(DiscretizedNormal, width=0.002)
PIXELS = Family(DiscretizedNormal, width=1 / 255, low=0.0, high=1.0)


class Subject(NamedTuple):
    """An experiment with data of its shape."""

    experiment: Experiment
    dataset: Dataset
    xs: np.ndarray

    @property
    def medium(self) -> AbstractMedium:
        """What the data are recordings of."""
        return medium_of(self.dataset)


def table() -> Subject:
    """The table of the quick start, with the model and sizes that `varfilter train` gives it."""
    source = source_of(SENSORS)
    dataset = load(source)
    return Subject(own_experiment(source), dataset, dataset.observations(dataset.test[0]))


def music() -> Subject:
    """Piano rolls, with the paper's SRNN."""
    return _random(experiment_named("srnn-jsb-avf"), "music", (88,), Family(Bernoulli))


def sound() -> Subject:
    """Sound of 200 samples a step, with a small SRNN."""
    return _random(_small("srnn-timit-avf", SMALL_SOUND), "sound", (200,), SPEECH)


def sound_full() -> Subject:
    """The same with the paper's VRNN, which `varfilter train` gives a folder of sound."""
    return _random(experiment_named("vrnn-timit-avf"), "sound", (200,), SPEECH)


def video() -> Subject:
    """Frames of 64 by 64 pixels, with a small SVG."""
    return _random(_small("svg-kth-avf", SMALL_VIDEO), "video", (1, 64, 64), PIXELS)


def video_full() -> Subject:
    """The same with the paper's SVG."""
    return _random(experiment_named("svg-kth-avf"), "video", (1, 64, 64), PIXELS)


SUBJECTS = {each.__name__: each for each in (table, music, sound, sound_full, video, video_full)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = f"of {', '.join(SUBJECTS)} (all)"
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=choices)
    parser.add_argument("--quick", action="store_true", help="two numbers of trajectories, once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.subjects or (["table"] if arguments.quick else list(SUBJECTS))
    if unknown := set(names) - set(SUBJECTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; give some {choices}")
    if arguments.one:
        print(json.dumps(measure(names[0], quick=arguments.quick)))
        return

    console, rows = Console(width=120), []
    for name in names:
        # A process each: the peak of the memory is its own.
        options = [name, "--one", *(["--quick"] if arguments.quick else [])]
        done = subprocess.run(
            [sys.executable, __file__, *options], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            console.print(f"{name} failed: {(done.stderr.splitlines() or [done.returncode])[-1]}")
            sys.exit(1)
        for row in json.loads(done.stdout):
            rows.append(row)
            live = "" if row["line_ms"] is None else f", a live line {row['line_ms']:.3g} ms"
            console.print(
                f"{name}, {row['num_particles']} trajectories: {row['step_ms']:.3g} ms a step,"
                f" {row['times_one']:.2f} times the paper's filter{live};"
                f" peak {row['peak_gib']:.2f} GiB"
            )
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(name: str, *, quick: bool) -> list[dict[str, Any]]:
    """A row for each number of trajectories."""
    subject = SUBJECTS[name]()
    model, trained, _ = subject.experiment.build(subject.dataset)
    is_full = name.endswith("full")
    counts = COUNTS[:2] if quick or name == "video_full" else COUNTS[:4] if is_full else COUNTS
    num_steps = {"video": 4, "video_full": 2}.get(name, 16)
    xs, num_samples = subject.xs[: num_steps + 1], subject.medium.num_samples
    chunks, lines, peaks = {}, {}, {}
    for count in counts:  # upwards: the peak is that of the largest so far
        filter = applied_filter(trained, count)
        chunks[str(count)] = _chunk(filter, model, xs, num_samples)
        if name == "table":
            lines[str(count)] = _line(filter, model, xs, num_samples)
        chunks[str(count)]()
        peaks[count] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    race = Race(chunks, num_rounds=1 if quick or is_full else 5)
    live = Race(lines, num_rounds=1 if quick else 21, num_calls=1 if quick else 10)
    return [
        {
            "subject": name,
            "num_particles": count,
            "step_ms": 1e3 * race.seconds(str(count)) / num_steps,
            "times_one": race.ratio(str(count), to="1"),
            "line_ms": 1e3 * live.seconds(str(count)) if lines else None,
            "peak_gib": peaks[count],
            "device": jax.devices()[0].device_kind,
        }
        for count in counts
    ]


def _chunk(filter: Any, model: Any, xs: np.ndarray, num_samples: int) -> Any:
    """What `filter_data` does with the steps after the first."""

    def call() -> None:
        found = run_predictive(
            filter, model, xs[1:], KEY, x0=xs[0], num_samples=num_samples, levels=LEVELS
        )
        jax.block_until_ready(found)

    return call


def _line(filter: Any, model: Any, xs: np.ndarray, num_samples: int) -> Any:
    """What `LiveFilter` does with a line: predict, then fold it in."""
    stream = Stream(filter, model, KEY)
    stream.belief = start(filter, model, xs[0], KEY)

    def call() -> None:
        predicted = predict(
            filter, model, stream.belief, KEY, num_samples=num_samples, levels=LEVELS
        )
        jax.block_until_ready((predicted, stream.push(xs[1])))

    return call


def _small(name: str, model: Any) -> Experiment:
    return dataclasses.replace(experiment_named(name), model=model, filter=SMALL_NETWORK)


def _random(experiment: Experiment, medium: str, shape: tuple[int, ...], family: Family) -> Subject:
    xs = np.random.default_rng(0).uniform(size=(17, *shape)).astype(np.float32)
    xs = xs.round() if family.width is None else xs
    part = Ragged.of([xs])
    return Subject(experiment, Dataset(medium, part, part, part, family, medium=medium), xs)


if __name__ == "__main__":
    main()
