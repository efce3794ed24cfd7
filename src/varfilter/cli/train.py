"""`varfilter train`: an experiment by name, the user's own data, or a run that goes on."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from varfilter._text import pasteable, say, say_labelled, tell
from varfilter.cli import usage
from varfilter.cli.exits import STOPPED, Stopping, refusals
from varfilter.cli.options import (
    Command,
    Target,
    TrainOptions,
    experiment_flags,
    experiment_options,
    given_option,
    meant_by,
    overridden,
    with_method,
)

SMALLER = (
    "Give a smaller --schedule.batch-size or --schedule.num-steps, or smaller sizes of the model."
)


@dataclass(frozen=True, kw_only=True)
class Train(TrainOptions, Command):
    """Train: an experiment by its name, your own table or recordings, or a run begun earlier.

    Every field of the experiment is an option; `varfilter train EXPERIMENT --help-all` lists them
    with their values. The run goes to a folder: its settings, metrics, checkpoints, and the
    best model by validation. It may be stopped at any moment (Ctrl-C) and goes on to the bit
    where it was.

    examples:
      varfilter train srnn-jsb-avf --preset small
      varfilter train readings.csv --data.sequence pump --data.time when
      varfilter train srnn-jsb-avf --out runs/five --schedule.num-epochs 50
      varfilter train srnn-jsb-avf --method descent --max-updates 100
      varfilter train srnn-jsb-avf --seeds 8
      varfilter train runs/srnn-jsb-avf
    """

    what: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT|TABLE|FOLDER|RUN", name="what")
    ]
    """A name of `varfilter list` or `varfilter data list`, a table, a folder of recordings, or the
    folder of a run."""

    @classmethod
    def main(cls, prog: str, words: Sequence[str], stopping: Stopping | None = None) -> int:
        """Parse the first word, which says what the options are, then those; and train.

        `stopping` says when a signal has come; without it they do what they do elsewhere.
        """
        if not words or {*usage.SHORT, usage.ALL}.issuperset(words):
            print(cls.help(prog, words))
            return 0
        word, *rest = words
        if word.startswith("-"):
            tell(
                f"The experiment comes first: `varfilter train EXPERIMENT {word} ...`."
                " `varfilter list` shows the names."
            )
            return 2
        with refusals(SMALLER) as refused:
            target = with_preset_given(meant_by(word), rest)
            given = with_method(target.experiment, rest)
            if usage.is_asked(rest):
                print(_help(f"{prog} {pasteable(word)}", given, rest))
                return 0
            refused.options = lambda: experiment_flags(given, rest)
            experiment, chosen = overridden(target, rest, prog=f"{prog} {pasteable(word)}")
            target = replace(target, experiment=experiment)
            return _train(target, chosen, stopping or Stopping(), (*prog.split(), *words))
        return refused.code

    def __call__(self) -> int:
        """Run with these options alone; returns the exit code."""
        return self.main("varfilter train", [self.what])


def _train(target: Target, options: TrainOptions, stopping: Stopping, words: Sequence[str]) -> int:
    from varfilter._arguments import require_library, require_positive
    from varfilter.cli.overview import overview
    from varfilter.cli.progress import shown_by
    from varfilter.devices import in_any_process, is_first_process
    from varfilter.media import load, medium_named
    from varfilter.runs.commands import keeping
    from varfilter.runs.comparison import compared_part
    from varfilter.runs.plan import plan_run, reached_in
    from varfilter.runs.run import Run
    from varfilter.runs.training import train_run

    experiment, out, earlier = target.experiment, options.out, target.run
    assert out is not None
    if options.max_updates is not None:
        require_positive("--max-updates", options.max_updates)
    if options.horizon is not None:
        require_positive("--horizon", options.horizon)
        medium = medium_named(experiment.data.medium)
        if not medium.has_column_references:
            raise ValueError(
                f"`--horizon` is {options.horizon}, but says how many steps ahead the columns of a"
                f" table are forecast; this is {medium.plural}. Leave it out."
            )
    if not options.checkpoint_seconds >= 0.0:
        raise ValueError(
            f"`--checkpoint-seconds` must not be negative; got {options.checkpoint_seconds}."
        )
    if options.tensorboard:
        require_library("tensorboardX", extra="tensorboard")
    if options.seeds is not None:
        from varfilter.cli.seeds import train_seeds

        return train_seeds(target, options, stopping, words)
    stopping.is_alone = not options.distributed
    devices = _devices(experiment, together=options.distributed)
    if not is_first_process():
        options = replace(options, quiet=True, tensorboard=False)
    if earlier is not None and earlier.experiment.data == experiment.data:
        dataset = earlier.dataset
    else:
        dataset = load(experiment.data)
    if options.horizon is not None:
        compared_part(dataset, "valid", options.horizon)  # refused before anything is trained
    run = Run.begin(out, experiment, dataset)
    plan, keep = None, keeping(words, options.max_updates, [run])
    if not options.quiet:
        reached = [reached_in(run.folder)]
        plan = plan_run(experiment, dataset, max_updates=options.max_updates, reached=reached)
        say_labelled(overview(run, dataset, plan))
    events = train_run(
        run,
        dataset,
        max_updates=options.max_updates,
        seconds_per_checkpoint=options.checkpoint_seconds,
        devices=devices,
    )
    stopping.save_with(events.leave, lambda: _how_to_go_on(run, _left(run)))
    stopped = None
    try:
        with (
            shown_by(run, options, stopping, plan) as show,
            # Closed before anything else: what was learned is saved.
            closing(events),
        ):
            for event in events:
                keep()  # not before: the folder may be another process's
                # What stays on the screen is what is saved.
                stopped = show(event)
                # One process alone would leave the others waiting for its part of an update.
                if in_any_process(stopping.is_asked) and stopped is None:
                    stopping.take_over()
                    break
    except OSError as error:
        tell(error)
        if run.has_learned:  # else there is nothing to go on with, or it is elsewhere now
            say(_how_to_go_on(run, "Training stopped; what was saved before is whole."))
        return 2
    if is_first_process():
        if stopped is None:
            say(_how_to_go_on(run, _left(run)))
        else:
            _print_end(run, dataset, stopped, options)
    return STOPPED if stopped is None else 0


def _devices(experiment: Any, *, together: bool) -> Any:
    """All devices of all processes, to share each batch; None where there is only one."""
    import jax

    from varfilter.devices import connect, device_mesh

    if together:
        # JAX would take SIGTERM for itself, and training would go on to its end.
        jax.config.update("jax_enable_preemption_service", False)
        connect()
    return device_mesh(experiment.schedule.batch_size) if jax.device_count() > 1 else None


def _how_to_go_on(run: Any, before: str) -> str:
    return f"{before} To go on: {run.command('train')}"


def _left(run: Any) -> str:
    return "Stopped, and saved." if run.has_learned else "Stopped; nothing was learned yet."


def _print_end(run: Any, dataset: Any, stopped: Any, options: TrainOptions) -> None:
    from varfilter.cli.comparison import say_alarms, say_comparison, tell_what_comes
    from varfilter.cli.progress import best_score
    from varfilter.runs.applied import calibrate_run
    from varfilter.runs.comparison import remember_comparison
    from varfilter.runs.metrics import verdict
    from varfilter.runs.scores import judged_run

    say(
        f"Done at step {stopped.step:,}: {stopped.reason}.",
        f"run: {run.folder}",
        *best_score(run, stopped.best),
    )
    if not options.quiet:
        tell_what_comes(run)
    # Now, since the data are at hand: the folder may go where they are not.
    healthy = calibrate_run(run, dataset)
    say_alarms(run, healthy)
    compared = remember_comparison(run, dataset, options.horizon or 1)
    if compared is not None and not options.quiet:
        say_comparison(compared)
    naive = verdict(run)
    others = [text for text in judged_run(run, dataset) if text != naive]
    say_labelled([("warning:", text) for text in others], sys.stdout)
    say(f"next: {run.command('evaluate')}", f"      {run.command('report')}")
    # Last of all: who reads one line should read this one.
    say_labelled([("warning:", naive)] if naive else [], sys.stdout)


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
    from varfilter.runs.folder import is_run, seed_folder, seeds_in
    from varfilter.runs.run import Run

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


def _help(prog: str, experiment: Any, words: Sequence[str]) -> str:
    """The options of training and of the data; those of the model and the rest if asked for all."""
    text = f"{_description(experiment)}\n\nexample: {prog} --max-updates 100"
    options = experiment_options(experiment)
    first, rest = options[:2], options[2:]
    others = ", ".join(f"--{each.title}.* ({len(each.options)})" for each in rest)
    shown = options if usage.ALL in words else first
    return usage.page(prog, text, shown, words, more=f"{others}, with their values")


def _description(experiment: Any) -> str:
    published = experiment.published
    paper = ""
    if published is not None:
        paper = f" The paper ({published.table}) has {published.nats:g} nats per step."
    return (
        f"{experiment.name}: {type(experiment.model).__name__.removesuffix('Sizes')} on"
        f" {experiment.data.source}.{paper}"
    )
