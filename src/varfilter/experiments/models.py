"""The models of the experiments: their sizes as plain numbers, and how they are built for data."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jaxtyping import PRNGKeyArray

from varfilter._arguments import nearest, require_positive
from varfilter._text import count
from varfilter.data.dataset import Dataset, Family, Transform
from varfilter.distributions import Bernoulli, DiscretizedNormal, Normal
from varfilter.model import AbstractModel
from varfilter.models import (
    SRNN,
    SVG,
    VRNN,
    AutoregressiveHead,
    BernoulliChange,
    BernoulliImage,
    ColumnHead,
    Continued,
    Differenced,
    Logarithmic,
    NormalChange,
    NormalImage,
)
from varfilter.models.heads import BernoulliHead, VaryingNormalHead
from varfilter.nn import DCGAN, VGG

# Maps of a stage of SVG's coders, and stages, at most: those of VGG for frames of 1,024 pixels.
MOST_MAPS, MOST_STAGES = 512, 8


@dataclass(frozen=True)
class Observations:
    """All that a model has to know of the data: of what shape and family one observation is.

    A `Dataset` says the same, and stands in its place wherever models are built.
    """

    name: str
    observation_shape: tuple[int, ...]
    family: Family | tuple[Family, ...]
    input_size: int = 0

    @property
    def num_elements(self) -> int:
        """How many numbers one observation has."""
        return math.prod(self.observation_shape)


@dataclass(frozen=True)
class VRNNSizes:
    """A VRNN; the defaults are the paper's for speech."""

    # Why there is no preset but the small one; None where there are both.
    one_preset: ClassVar[str | None] = None

    latent_size: int = 200
    """Elements of z_t."""
    recurrent_size: int = 2000
    """Units of the LSTM."""
    data_feature_size: int = 600
    """Units of each layer that x_t goes through before the LSTM."""
    latent_feature_size: int = 500
    """Units of each layer that z_t goes through before the LSTM and the decoder."""
    prior_size: int = 500
    """Units of each layer of the prior."""
    decoder_size: int = 600
    """Units of each layer of the decoder."""
    num_layers: int = 4
    """Layers of each of these networks."""
    order: int = 0
    """Samples before each that it depends on, by a filter decoded from z_t; 0: none."""

    def build(self, data: Dataset | Observations, key: PRNGKeyArray) -> AbstractModel:
        """Build the model for observations like those of the data."""
        sizes = {name: size for name, size in vars(self).items() if name != "order"}
        head = head_for(data, log_var_range=(-20.0, 5.0))
        if self.order:
            self._require_samples(data)
            head = functools.partial(AutoregressiveHead, order=self.order, head=head)
        core = VRNN(data.observation_shape, head=head, input_size=data.input_size, key=key, **sizes)
        return model_of_columns(Continued(core) if self.order else core, data)

    def _require_samples(self, data: Dataset | Observations) -> None:
        """Refuse an order that is none, and data whose numbers do not follow each other in time."""
        if not isinstance(self.order, int) or self.order < 0:
            raise ValueError(
                "`model.order` must be a whole number, 0 for samples that do not depend on each"
                f" other; got {self.order!r}."
            )
        families = {Normal, DiscretizedNormal}
        is_one = not isinstance(data.family, tuple) and data.family.distribution in families
        if not is_one or len(data.observation_shape) != 1:
            raise ValueError(
                f"`model.order` is {self.order}, but {data.name!r} has no samples that go on from"
                " each other, as those of sound do. Leave it 0."
            )


@dataclass(frozen=True)
class SRNNSizes:
    """An SRNN; the defaults are the paper's for music."""

    one_preset: ClassVar[str | None] = None

    latent_size: int = 100
    """Elements of z_t."""
    recurrent_size: int = 300
    """Units of the LSTM over the observations."""
    prior_size: int = 500
    """Units of each layer of the prior."""
    num_prior_layers: int = 1
    """Layers of the prior."""
    decoder_size: int = 500
    """Units of each layer of the decoder."""
    num_decoder_layers: int = 2
    """Layers of the decoder."""

    def build(self, data: Dataset | Observations, key: PRNGKeyArray) -> AbstractModel:
        """Build the model for observations like those of the data."""
        core = SRNN(
            data.observation_shape,
            head=head_for(data, log_var_range=(-10.0, float("inf"))),
            input_size=data.input_size,
            key=key,
            **vars(self),
        )
        return model_of_columns(core, data)


@dataclass(frozen=True)
class SVGSizes:
    """An SVG; the defaults are the paper's for KTH, with VGG's coders."""

    one_preset: ClassVar[str | None] = None

    latent_size: int = 512
    """Elements of z_t."""
    code_size: int = 128
    """Elements of an encoded frame."""
    recurrent_size: int = 256
    """Units of each LSTM."""
    channels: tuple[int, ...] = (64, 128, 256, 512)
    """Maps of each stage of the coders; frames have 4 pixels a side for each doubling."""
    convolutions: tuple[int, ...] = (2, 2, 3, 3)
    """VGG's convolutions of each stage; without any, DCGAN's coders, one of stride two a stage."""
    use_skips: bool = False
    """Hand the last frame's maps to the decoder. The paper's runs had none."""
    std: float = 1.0
    """The standard deviation of a pixel where learning starts."""
    from_last_frame: bool = False
    """Predict a frame as the last one and what changes; else from the model's memory alone."""

    def build(self, data: Dataset | Observations, key: PRNGKeyArray) -> SVG:
        """Build the model for frames like those of the data."""
        if data.input_size:
            raise ValueError(f"SVG has no known inputs, but {data.name!r} has {data.input_size}.")
        coder = self._coder()
        shape = data.observation_shape
        if len(shape) != 3 or shape[1:] != (coder.image_size, coder.image_size):
            raise ValueError(
                f"`model.channels` has {count(len(self.channels), 'stage')}, for frames of"
                f" {coder.image_size}x{coder.image_size} pixels; {data.name!r} has observations"
                f" of shape {shape}. {self._advice(shape, coder.image_size)}"
            )
        family = _one_family(data, "SVG")
        is_binary = family.distribution is Bernoulli
        if self.from_last_frame:
            head = BernoulliChange() if is_binary else NormalChange(family.width, self.std)
        else:
            head = BernoulliImage() if is_binary else NormalImage(family.width, self.std)
        return SVG(
            shape[0],
            self.latent_size,
            coder=coder,
            code_size=self.code_size,
            recurrent_size=self.recurrent_size,
            head=head,
            use_skips=self.use_skips,
            key=key,
        )

    @property
    def stages(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The maps and the convolutions of each stage of the coders."""
        return self.channels, self.convolutions

    def sized(self, size: int) -> "SVGSizes":
        """The same for square frames of `size` pixels a side: its first stages, or more of them.

        Each further stage has twice the maps, up to those of the paper. Sizes that no number of
        stages has leave it as it is, and are refused when it is built.
        """
        number = _num_stages(size)
        if number is None or not self.channels:
            return self
        channels, convolutions = self.channels[:number], self.convolutions[:number]
        while len(channels) < number:
            most = max(MOST_MAPS, channels[-1])
            channels = (*channels, min(2 * channels[-1], most))
        while convolutions and len(convolutions) < number:
            convolutions = (*convolutions, convolutions[-1])
        return replace(self, channels=channels, convolutions=convolutions)

    def _advice(self, shape: tuple[int, ...], size: int) -> str:
        """What to give in place of stages that do not fit observations of this shape."""
        if len(shape) != 3 or shape[1] != shape[2]:
            return f"Give frames of {size}x{size} pixels (`data.size`)."
        if _num_stages(shape[1]) is None:
            fitting = [4 * 2**number for number in range(1, MOST_STAGES + 1)]
            below = [each for each in fitting if each < shape[1]][-1:]
            nearest_ones = below + [each for each in fitting if each > shape[1]][:1]
            listed = " or ".join(f"`--data.size {each}`" for each in nearest_ones)
            return f"A stage doubles 4 pixels a side: give {listed}."
        other = self.sized(shape[1])
        words = ["--model.channels", *other.channels]
        if other.convolutions:
            words += ["--model.convolutions", *other.convolutions]
        options = " ".join(map(str, words))
        return f"Give `--data.size {size}`, or `{options}`."

    def _coder(self) -> VGG | DCGAN:
        if not self.convolutions:
            return DCGAN(self.channels)
        if len(self.channels) != len(self.convolutions):
            ones = " ".join("1" for _ in self.channels)
            raise ValueError(
                "`model.channels` and `model.convolutions` must have one number for each stage;"
                f" got {self.channels} and {self.convolutions}. Beside these channels give"
                f" `--model.convolutions {ones}`, say."
            )
        pairs = zip(self.channels, self.convolutions, strict=True)
        return VGG(tuple((channels,) * count for channels, count in pairs))


@dataclass(frozen=True)
class TableSizes:
    """An SRNN for the columns of a table, each with its own family; None: by their number."""

    one_preset: ClassVar[str | None] = (
        "the paper has no tables. Leave it out: tables have one preset, small, which takes its"
        " sizes from the columns."
    )

    latent_size: int | None = None
    """Elements of z_t (two more than there are columns, from 4 to 16)."""
    hidden_size: int | None = None
    """Units of the LSTM and of each network (32 up to 8 columns, 64 up to 32, else 128)."""

    def build(self, data: Dataset | Observations, key: PRNGKeyArray) -> AbstractModel:
        """Build the model for the columns of the table."""
        columns = data.num_elements
        latent, hidden = self.latent_size, self.hidden_size
        if latent is None:
            latent = min(max(columns + 2, 4), 16)
        if hidden is None:
            hidden = 32 if columns <= 8 else 64 if columns <= 32 else 128
        require_positive("model.latent_size", latent)
        require_positive("model.hidden_size", hidden)
        core = SRNN(
            data.observation_shape,
            latent,
            recurrent_size=hidden,
            prior_size=hidden,
            decoder_size=hidden,
            num_decoder_layers=1,
            head=head_for(data, log_var_range=(-7.0, 3.0)),
            input_size=data.input_size,
            key=key,
        )
        return model_of_columns(core, data)


# The SRNN of speech; its defaults are those for music.
SRNN_SPEECH = SRNNSizes(
    latent_size=256,
    recurrent_size=1024,
    prior_size=512,
    num_prior_layers=2,
    decoder_size=512,
    num_decoder_layers=2,
)
# The width of one 16-bit level after standardising TIMIT, as the original code has it. It depends
# on the standard deviation of the training data: a data set has its own.
TIMIT_WIDTH = 0.0018190742
SPEECH = Observations("speech", (200,), Family(DiscretizedNormal, TIMIT_WIDTH))
PIXELS = Family(DiscretizedNormal, 1 / 255, 0.0, 1.0)
# The models of the paper, and others of its code and of the papers it builds on, with the
# observations they are for. Those without an experiment here have no data at hand.
PUBLISHED_MODELS: dict[str, tuple[VRNNSizes | SRNNSizes | SVGSizes, Observations]] = {
    "vrnn-timit": (VRNNSizes(), SPEECH),
    "vrnn-blizzard": (VRNNSizes(recurrent_size=4000), SPEECH),
    # IAM-OnDB pen strokes: two offsets and whether the pen is up, as a density.
    "vrnn-handwriting": (
        VRNNSizes(
            latent_size=50,
            recurrent_size=1200,
            data_feature_size=250,
            latent_feature_size=150,
            prior_size=150,
            decoder_size=250,
            num_layers=1,
        ),
        Observations("pen strokes", (3,), Family(Normal)),
    ),
    "srnn-timit": (SRNN_SPEECH, SPEECH),
    "srnn-music": (SRNNSizes(), Observations("piano rolls", (88,), Family(Bernoulli))),
    "svg-kth": (SVGSizes(), Observations("people", (1, 64, 64), PIXELS)),
    "svg-bair": (SVGSizes(latent_size=64), Observations("a robot arm", (3, 64, 64), PIXELS)),
    "svg-digits": (
        SVGSizes(latent_size=10, convolutions=()),
        Observations("moving digits", (1, 64, 64), Family(Bernoulli)),
    ),
}


def published_model(name: str, key: PRNGKeyArray) -> AbstractModel:
    """Build a published model at its full size, by its name in `PUBLISHED_MODELS`."""
    if name not in PUBLISHED_MODELS:
        raise ValueError(
            f"There is no published model {name!r}.{nearest(name, PUBLISHED_MODELS)}"
            f" Known are {', '.join(PUBLISHED_MODELS)}."
        )
    sizes, observations = PUBLISHED_MODELS[name]
    return sizes.build(observations, key)


def head_for(
    data: Dataset | Observations, *, log_var_range: tuple[float, float]
) -> Callable[..., Any]:
    """The output head for the family of a data set's observations, as a model sees them."""
    if isinstance(data.family, tuple):
        families = tuple(family.model_family for family in data.family)
        return functools.partial(ColumnHead, families=families)
    family = _one_family(data, "this model")
    if family.distribution is Bernoulli:
        return BernoulliHead
    if family.distribution in (Normal, DiscretizedNormal):
        return functools.partial(VaryingNormalHead, width=family.width, log_var_range=log_var_range)
    raise ValueError(
        f"{data.name!r} has observations of family `{family.distribution.__name__}`, for which"
        " there is no output head."
    )


def model_of_columns(model: AbstractModel, data: Dataset | Observations) -> AbstractModel:
    """Make a model of transformed columns one of the columns themselves.

    Columns that move on are transformed to logarithms and changes; where none do, it is `model`.
    """
    families = data.family if isinstance(data.family, tuple) else ()
    transforms = [family.transform or Transform() for family in families]
    if any(each.change_scale is not None for each in transforms):
        model = Differenced(
            model,
            [each.change_scale for each in transforms],
            drift=[each.drift for each in transforms],
            low=[f.low if f.transform else None for f in families],
            high=[f.high if f.transform else None for f in families],
            season=[each.season for each in transforms],
            season_spread=[each.season_spread or 1.0 for each in transforms],
        )
    if any(each.log_scale is not None for each in transforms):
        centres = [each.log_centre for each in transforms]
        model = Logarithmic(model, [each.log_scale for each in transforms], centre=centres)
    return model


def _num_stages(size: int) -> int | None:
    """The stages of coders for frames of `size` pixels a side, which are 4 doubled by each."""
    number = (size // 4).bit_length() - 1
    return number if 1 <= number <= MOST_STAGES and size == 4 * 2**number else None


def _one_family(data: Dataset | Observations, what: str) -> Family:
    if isinstance(data.family, Family):
        return data.family
    raise ValueError(
        f"{data.name!r} is a table, whose columns have families of their own; {what} needs one"
        " for all elements. Train it as a table: `varfilter train FILE.csv`."
    )
