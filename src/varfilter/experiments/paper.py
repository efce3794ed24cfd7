"""The experiments that have a name: those of the paper, the same on free data, and tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from varfilter._arguments import nearest
from varfilter.experiments.experiment import Experiment, Published
from varfilter.experiments.models import SRNN_SPEECH, SRNNSizes, SVGSizes, TableSizes, VRNNSizes
from varfilter.experiments.presets import fitted, with_preset
from varfilter.experiments.settings import AVF, Adam, Baseline, FilterChoice, Optimizers, Schedule
from varfilter.media import Source, medium_named, source_of

MUSIC = {
    # name: (data set, the paper's baseline and its correction, AVF and its correction)
    "piano": ("piano-midi", (8.19, 8.21), (8.12, 8.14)),
    "musedata": ("musedata", (6.27, 6.31), (5.99, 6.02)),
    "jsb": ("jsb", (6.92, 7.05), (6.97, 7.10)),
    "nottingham": ("nottingham", (3.19, 3.21), (3.13, 3.14)),
}
# The free data in the place of others, and the sizes that differ with them. A pixel's standard
# deviation is near the noise of real videos from the start: with 1 the latents are worth nothing
# for so long that learning gives them up.
AT_HAND: dict[str, tuple[str, dict[str, Any]]] = {
    "timit": ("timit-sample", {}),
    "kth": ("weizmann", {"std": 0.05}),
}
# More free speech: three times as much as the sample of TIMIT.
MORE_SPEECH: dict[str, tuple[str, dict[str, Any]]] = {"timit": ("emodb", {})}
# The paper's schedule on the user's own data is given up after this part of it without a gain.
PATIENCE = 5

# The inference network of the paper (section 4.1, appendix B); no default may change it.
NETWORK = AVF(
    update="highway", signal="gradients", normalize="layer", hidden_size=1024, num_layers=2
)


def _speech() -> tuple[Experiment, ...]:
    vrnn = Schedule(num_epochs=700, batch_size=64, num_steps=40)
    srnn = Schedule(num_epochs=1000, batch_size=64, num_steps=40, annealing_epochs=20)
    fast, slow = Adam(1e-3), Adam(1e-4)
    clipped = Adam(1e-3, clip_norm=1000.0), Adam(1e-4, clip_norm=1000.0)
    timit = source_of("timit")
    return (
        Experiment(
            "vrnn-timit-baseline", timit, VRNNSizes(),
            FilterChoice(Baseline(hidden_size=500, num_layers=4)),
            Optimizers(fast, fast), vrnn, published=Published("table-1", 1082, 1086),
        ),
        Experiment(
            "vrnn-timit-avf", timit, VRNNSizes(), FilterChoice(NETWORK),
            Optimizers(slow, slow, num_phi_steps=39), vrnn,
            published=Published("table-1", 1105, 1110),
        ),
        Experiment(
            "srnn-timit-baseline", timit, SRNN_SPEECH,
            FilterChoice(Baseline(hidden_size=512, num_layers=2)),
            Optimizers(clipped[0], clipped[0]), srnn, published=Published("table-1", 1026, 1030),
        ),
        # The paper feeds x_t to this network alone: without it training sat in a local minimum.
        Experiment(
            "srnn-timit-avf", timit, SRNN_SPEECH,
            FilterChoice(replace(NETWORK, encode_observation=True)),
            Optimizers(clipped[1], clipped[1], num_phi_steps=39),
            replace(srnn, annealing_epochs=50), published=Published("table-1", 1024, 1028),
        ),
    )  # fmt: skip


def _music() -> tuple[Experiment, ...]:
    annealed = Schedule(num_epochs=800, batch_size=16, num_steps=25, annealing_epochs=50)
    full_weight = replace(annealed, annealing_epochs=0)
    # Where AVF leaves the paper's protocol here, and why, as runs on JSB showed:
    # - One draw of z_t tells the network too little of where to go: with one the model learned
    #   stays well behind the baseline's, and each further draw helps.
    # - With the KL's weight at zero for an epoch, q runs away from the prior, and comes back for
    #   good only hundreds of epochs later: AVF starts at the prior, and needs no annealing.
    # - Latents that are not in use have gradients that are all noise, which Adam makes steps of
    #   full size of: their means and scales drift until all else is ill-conditioned. The larger
    #   epsilon, and a network that learns more slowly than the model, hold that off.
    # - The network learns at every step, and soon by heart: hence its weight decay.
    avf_filter = FilterChoice(replace(NETWORK, num_samples=64))
    avf_optimizers = Optimizers(Adam(2e-4, epsilon=1e-4), Adam(1e-4, weight_decay=0.3))
    found = []
    for name, (source, baseline, avf) in MUSIC.items():
        found += [
            Experiment(
                f"srnn-{name}-baseline", source_of(source), SRNNSizes(), FilterChoice(Baseline()),
                Optimizers(), annealed, published=Published("table-3", *baseline),
            ),
            Experiment(
                f"srnn-{name}-avf", source_of(source), SRNNSizes(), avf_filter,
                avf_optimizers, full_weight, published=Published("table-3", *avf),
            ),
        ]  # fmt: skip
    return tuple(found)


def _videos() -> tuple[Experiment, ...]:
    schedule = Schedule(num_epochs=100, batch_size=20, num_steps=21)
    return (
        Experiment(
            "svg-kth-baseline", source_of("kth"), SVGSizes(),
            FilterChoice(Baseline(hidden_size=256)), Optimizers(), schedule,
            published=Published("table-2", 15097, 15297),
        ),
        Experiment(
            "svg-kth-avf", source_of("kth"), SVGSizes(),
            FilterChoice(replace(NETWORK, num_layers=1)),
            Optimizers(num_phi_steps=20), schedule, published=Published("table-2", 11714, 11870),
        ),
    )  # fmt: skip


def _at_hand(experiment: Experiment, sets: dict[str, tuple[str, dict[str, Any]]]) -> Experiment:
    """The experiment on free data of its kind, for which there is no published number."""
    model, data, method = experiment.name.split("-")
    other, sizes = sets[data]
    return replace(
        experiment,
        name=f"{model}-{other}-{method}",
        data=source_of(other),
        model=replace(experiment.model, **sizes),
        published=None,
    )


def _table() -> Experiment:
    """A small SRNN under AVF, for the user's own tables and other data of few numbers a step.

    Its sizes and windows are chosen by what the data hold. Some of each window is hidden: a model
    that is always shown all of the past learns to predict one step ahead, and is too sure of
    itself further on.

    It learns by the free energy of one path: over seven tables no particle bound scored clearly
    better on held-out rows or had clearly better bands, and an update by 8 particles took 7 times
    as long (`benchmarks/table_bounds.py`).

    Two members, since a table says little: they are right where one is sure of what it cannot
    know, and score better than either.
    """
    adam = Adam(5e-3, decay=0.9, clip_norm=5.0)
    return Experiment(
        "table",
        medium_named("table").source("your own file"),
        TableSizes(),
        FilterChoice(replace(NETWORK, encode_observation=True, hidden_size=64, num_layers=1)),
        Optimizers(replace(adam, weight_decay=0.1), adam, num_phi_steps=4),
        Schedule(
            num_epochs=30,
            batch_size=48,
            num_steps=None,
            windows_per_epoch=2400,
            hidden_elements=0.1,
            hidden_gaps=0.015,
            longest_gap=20,
            patience_epochs=10,
        ),
        num_members=2,
        preset="small",
    )


# In the order of the paper; then the same on the data at hand; then the user's own.
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *_speech(),
        *_videos(),
        *_music(),
        *(_at_hand(each, AT_HAND) for each in (*_speech(), *_videos())),
        *(_at_hand(each, MORE_SPEECH) for each in _speech()),
        _table(),
    )
}
# Those that are trained on the user's data, which the command line takes in the place of a name.
TEMPLATES = ("table",)


def experiment_named(name: str) -> Experiment:
    """Look up an experiment by its name; the error for another has the nearest name."""
    if name in TEMPLATES:
        raise ValueError(
            "The experiment for tables takes its sizes from yours: give the path of the file in"
            " the place of a name, such as `varfilter train readings.csv`."
        )
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    raise ValueError(
        f"There is no experiment {name!r}.{nearest(name, EXPERIMENTS)} `varfilter list` shows them"
        " all; or give the path of a table, such as readings.csv, or the folder of a run."
    )


def own_experiment(source: Source, preset: str = "small") -> Experiment:
    """The model, sizes and schedule that suit the user's own data, by their medium and a preset.

    Nobody compares it with the paper: it stops when validation no longer improves.
    """
    medium = medium_named(source.medium)
    like = EXPERIMENTS[medium.experiment]
    path = Path(source.source)
    name = path.name if path.is_dir() else path.name.split(".")[0]
    found = replace(like, name=name or like.name, data=source, published=None)
    found = fitted(with_preset(found, preset))
    found = replace(found, model=replace(found.model, **medium.own_sizes))
    if preset == "small" and medium.own_epochs is not None:
        found = replace(found, schedule=replace(found.schedule, num_epochs=medium.own_epochs))
    if found.schedule.patience_epochs is not None:
        return found
    patience = max(1, found.schedule.num_epochs // PATIENCE)
    return replace(found, schedule=replace(found.schedule, patience_epochs=patience))
