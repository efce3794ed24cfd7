"""`varfilter sample`: sequences that a trained model makes up, from nothing or from a file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from varfilter._text import count, say, tell
from varfilter.cli.apply import AppliedCommand
from varfilter.cli.exits import refusals
from varfilter.cli.options import Number, Out, Particles, RunFolder, TableFile, named, require_place


@dataclass(frozen=True)
class Sample(AppliedCommand):
    """Sequences that a trained model makes up: music to hear, videos to watch, tables to open.

    A sequence begins with the first step of one that the run was trained on, drawn from some that
    are kept in its folder; with --start, it goes on from a piece, a sentence, a clip or a table of
    yours, which is filtered first, and where the model takes over is said.

    At each step the latent is drawn from its prior and x_t from its emission. With --mean, x_t is
    the mean of its emission in place of a draw, of which pixels would be snow; the latents are
    drawn all the same. Of music, whose means are probabilities, as many of the most probable keys
    sound as are expected to; of a column of levels, the most probable one. --temperature T takes
    every distribution that is drawn from to the power of 1 / T: Gaussians have T times their
    variance, the log-odds of notes and levels are divided by T. Below 1 a model is surer of itself,
    above 1 it is wilder.

    Music is written as .mid, sound as .wav, videos as .gif, tables as .csv (or .jsonl, .parquet);
    .npz holds any. Several sequences are numbered files, or one table with a column `sequence`.

    examples:
      varfilter sample runs/srnn-jsb-avf --out tune.mid --num-steps 64
      varfilter sample runs/srnn-jsb-avf --start song.mid --temperature 0.8
      varfilter sample runs/clips --start clip.mp4 --mean --out clip.gif
      varfilter sample runs/pumps --out pumps.csv --num-sequences 10
    """

    run: RunFolder
    """The folder of a run."""
    out: Out = None
    """The file to write (sample.mid, .wav, .gif or .csv, by the kind of the data)."""
    num_steps: Number = 100
    """Steps of each sequence; with --start, steps that are made up after it."""
    num_sequences: Number = 1
    """How many sequences; with --start, how many continuations of each of its sequences."""
    start: Annotated[str | None, named("INPUT")] = None
    """Data to go on from, as `varfilter filter` takes them."""
    only_new: bool = False
    """With --start: write what the model made up alone, without what it went on from."""
    mean: bool = False
    """The mean of each emission in place of a draw of it."""
    temperature: Annotated[float, tyro.conf.arg(metavar="T")] = 1.0
    """How random, above 0 and at most 10: below 1 surer of itself, above 1 wilder."""
    inputs: TableFile = None
    """A table of the known inputs of the steps, of a run that has any."""
    num_particles: Particles = None
    """With --start: trajectories of the filter (as of `varfilter filter`)."""
    seed: Number = 0
    """All randomness comes from this number."""

    def flags(self) -> dict[str, str]:
        """The options; what is read is what --start names."""
        return super().flags() | dict.fromkeys(("source", "path", "folder", "INPUT"), "--start")

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals("Give a smaller --num-steps.", self.flags) as refused:
            from varfilter.media import write_samples
            from varfilter.runs.run import Run
            from varfilter.runs.sampling import sample_run

            for name in self.given("only_new", "num_particles") if self.start is None else ():
                raise ValueError(
                    f"`{name}` is for what goes on from a file: give --start too, or leave it out."
                )
            if self.start == "-":
                raise ValueError(
                    "`--start` is -, but takes no lines from standard input: give a file or a"
                    " folder."
                )
            run = Run.load(self.run)
            endings = run.medium.endings
            out = Path(f"sample{endings[0]}") if self.out is None else self.out
            require_place(out, endings)
            samples = sample_run(
                run, self.num_steps, self.num_sequences, start=self.start, mean=self.mean,
                temperature=self.temperature, inputs=self.inputs, seed=self.seed,
                num_particles=self.num_particles,
            )  # fmt: skip
            given = [each.num_given if self.only_new else 0 for each in samples]
            sequences = [each.xs[n:] for each, n in zip(samples, given, strict=True)]
            times = [
                None if each.times is None else each.times[n:]
                for each, n in zip(samples, given, strict=True)
            ]
            names, schemas = self._names(samples), [each.schema for each in samples]
            paths = write_samples(out, run.template, sequences, times, names, schemas)
            say(*paths)
            if len(paths) > 1 and len({each.name for each in samples}) > 1:
                # Numbered files do not say what they go on from.
                tell(*(f"{path}: {name}" for path, name in zip(paths, names, strict=True)))
            for name in dict.fromkeys(each.name for each in samples if each.name is not None):
                each = next(each for each in samples if each.name == name)
                own = Path(str(self.start)).stem if name == 0 else str(name)
                tell(_where_it_goes_on(run, own, each, only_new=self.only_new))
            tell(*_traits_beside_data(run, samples))
        return refused.code

    def _names(self, samples: Sequence[Any]) -> list[Any]:
        """What several in one table are called: by what they go on from, and by their numbers.

        What goes on from a table of one sequence, which has no name, has none either.
        """
        if self.start is None or self.num_sequences == 1:
            return [None if each.name == 0 else each.name for each in samples]
        return [
            number if each.name == 0 else f"{each.name} {number}"
            for i, each in enumerate(samples)
            for number in [i % self.num_sequences + 1]
        ]


def _traits_beside_data(run: Any, samples: Sequence[Any]) -> list[str]:
    """What was made up is like to an ear, in numbers, beside the training part; or nothing."""
    from varfilter.media.rows import restored
    from varfilter.media.traits import trait_table

    template = run.template
    made = run.medium.traits(template, [restored(template, each.made) for each in samples])
    # Runs of before there were such numbers have none of their data.
    data = run.record["data"].get("traits") or {}
    if not made:
        return []
    rows = [["", "made up", "training"], *trait_table({"made up": made, "training": data})]
    width = max(len(name) for name, *_ in rows)
    return [f"{name:{width}}{own:>10}{of_data:>10}".rstrip() for name, own, of_data in rows]


def _where_it_goes_on(run: Any, name: str, sample: Any, *, only_new: bool) -> str:
    """A sentence on where the model takes over in what is called so."""
    num_given, num_new = sample.num_given, len(sample.made)
    seconds = ""
    own = {} if sample.schema is None else {"schema": sample.schema}
    if (length := run.medium.seconds_per_step(replace(run.template, **own))) is not None:
        seconds = f" ({num_given * length:.4g} s)"
    if only_new:
        return f"{name}: {count(num_new, 'step')} that would follow its {num_given:,}{seconds}."
    if num_given == 1:
        return f"{name}: the first step{seconds} is as given, the {num_new:,} after it made up."
    return (
        f"{name}: the first {count(num_given, 'step')}{seconds} are as given, and the"
        f" {num_new:,} after them made up."
    )
