"""Presets: sizes, inference, optimizers and a schedule that go together, one set for each model.

`paper` is what the paper has, and is the experiment as it stands. `small` is for two cores and a
few minutes: the same model with fewer units, and as many updates whatever the amount of the data.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from varfilter.experiments.experiment import Experiment
from varfilter.experiments.models import SRNN_SPEECH, SRNNSizes, SVGSizes, VRNNSizes
from varfilter.experiments.settings import AVF, Adam, Baseline, Optimizers, Schedule

PresetName = Literal["small", "paper"]
# What each is for, in the words of `varfilter list`.
PRESETS: dict[str, str] = {
    "small": "for two cores and about five minutes; what your own recordings get on a CPU",
    "paper": "the paper's sizes and schedule; what the named experiments are",
}
# On an accelerator the user's own recordings get the paper's model up to so many updates.
MOST_UPDATES = 20_000


@dataclass(frozen=True)
class Preset:
    """What takes the place of an experiment's own settings; `baseline` is for that method."""

    model: VRNNSizes | SRNNSizes | SVGSizes
    avf: AVF
    baseline: Baseline
    optimizer: Optimizers
    schedule: Schedule

    def applied(self, experiment: Experiment) -> Experiment:
        """The experiment with these settings; its data, method, bound and seed stay its own."""
        inference = experiment.filter.inference
        if isinstance(inference, AVF):
            inference = self.avf
        elif isinstance(inference, Baseline):
            inference = self.baseline
        found = replace(
            experiment,
            model=self.model,
            filter=replace(experiment.filter, inference=inference),
            optimizer=self.optimizer,
            schedule=self.schedule,
        )
        return fitted(found)


def fitted(experiment: Experiment, begun: Experiment | None = None) -> Experiment:
    """The experiment with a stage more or fewer where frames of another size were asked for.

    `begun` is what it was before its options were given: stages that were among them stay.
    """
    model: Any = experiment.model
    size = experiment.data.options().get("size")
    # Only models of frames have stages.
    if not hasattr(model, "stages") or size is None:
        return experiment
    if begun is not None:
        before: Any = begun.model
        is_same = begun.data.options().get("size") == size
        if is_same or getattr(before, "stages", None) != model.stages:
            return experiment
    return replace(experiment, model=model.sized(size))


def _schedule(num_epochs: int, **others: Any) -> Schedule:
    """Epochs of 20 updates: long enough for a validation, short enough to stop in time."""
    batch_size = others["batch_size"]
    return Schedule(
        num_epochs=num_epochs, windows_per_epoch=20 * batch_size, patience_epochs=20, **others
    )


# The form of the paper's network, as the presets were measured with.
NETWORK = AVF(update="highway", signal="gradients", normalize="layer", num_layers=1)
# By the class of the model's sizes. How long each takes: `benchmarks/presets.py`.
SMALL: dict[type, Preset] = {
    SRNNSizes: Preset(
        SRNNSizes(
            latent_size=32,
            recurrent_size=128,
            prior_size=128,
            decoder_size=256,
            num_decoder_layers=1,
        ),
        replace(NETWORK, encode_observation=True, hidden_size=256, num_samples=8),
        Baseline(hidden_size=256),
        Optimizers(Adam(1e-3, decay=0.99), Adam(5e-4, decay=0.99), num_phi_steps=8),
        _schedule(150, batch_size=16, num_steps=25),
    ),
    VRNNSizes: Preset(
        VRNNSizes(
            latent_size=32,
            recurrent_size=256,
            data_feature_size=128,
            latent_feature_size=64,
            prior_size=64,
            decoder_size=128,
            num_layers=2,
        ),
        replace(NETWORK, encode_observation=True, hidden_size=128),
        Baseline(hidden_size=128, num_layers=2),
        Optimizers(
            Adam(1e-3, decay=0.99, clip_norm=1000.0),
            Adam(1e-3, decay=0.99, clip_norm=1000.0),
            num_phi_steps=4,
        ),
        _schedule(60, batch_size=16, num_steps=25),
    ),
    SVGSizes: Preset(
        SVGSizes(
            latent_size=16,
            code_size=64,
            recurrent_size=96,
            channels=(8, 16, 32, 64),
            # VGG's: the strides of DCGAN's take ten times as long on a CPU.
            convolutions=(1, 1, 1, 1),
            # In so few updates what stands still in a picture is not learned from nothing.
            from_last_frame=True,
            std=0.01,
        ),
        replace(NETWORK, hidden_size=128),
        Baseline(hidden_size=96),
        Optimizers(Adam(3e-3, decay=0.93), Adam(1e-3, decay=0.99), num_phi_steps=4),
        _schedule(12, batch_size=4, num_steps=11),
    ),
}
# Of speech a step is 200 numbers, and takes longer.
SMALL_SRNN_SPEECH = replace(
    SMALL[SRNNSizes],
    schedule=replace(SMALL[SRNNSizes].schedule, num_epochs=60),
)


def small_preset(experiment: Experiment) -> Preset:
    """The small preset for the model of an experiment, by its own sizes."""
    if experiment.model == SRNN_SPEECH:
        return SMALL_SRNN_SPEECH
    return SMALL[type(experiment.model)]


def with_preset(experiment: Experiment, name: str) -> Experiment:
    """The experiment by a preset; `paper` is the experiment as it stands.

    The paper's number is of its own sizes: others have none. Sizes that are not in the paper have
    the small one alone.
    """
    if name not in get_args(PresetName):
        raise ValueError(f"`preset` must be one of {', '.join(PRESETS)}; got {name!r}.")
    if experiment.model.one_preset is not None:
        if name == "paper":
            raise ValueError(f"`preset` is 'paper', but {experiment.model.one_preset}")
        return experiment
    if name == experiment.preset:
        return experiment
    if experiment.preset != "paper":
        raise ValueError(
            f"`preset` is {name!r}, but {experiment.name!r} has that of {experiment.preset}"
            " already. Begin another run, with another `--out`."
        )
    return replace(small_preset(experiment).applied(experiment), preset=name, published=None)


def suitable_preset(like: Experiment, platform: str, num_recordings: int) -> str:
    """The preset for the user's own data, `num_recordings` of them, on a device of a platform.

    `like` is the experiment of the paper that suits their medium. On a CPU it is the small one
    always; elsewhere the paper's, where that is no more than 20,000 updates.
    """
    if like.model.one_preset is not None or platform == "cpu":
        return "small"
    schedule = like.schedule
    num_batches = -(-max(num_recordings, 1) // schedule.batch_size)
    updates = schedule.num_epochs * schedule.updates_per_epoch(num_batches)
    return "paper" if updates <= MOST_UPDATES else "small"
