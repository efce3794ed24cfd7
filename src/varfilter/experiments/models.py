"""The models of the experiments: their sizes as plain numbers, and how they are built for data."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import PRNGKeyArray

from varfilter.data.dataset import Dataset, Family
from varfilter.distributions import Bernoulli, DiscretizedNormal, Normal
from varfilter.models import SRNN, SVG, VRNN, BernoulliImage, ColumnHead, NormalImage
from varfilter.models.heads import BernoulliHead, VaryingNormalHead
from varfilter.nn import VGG


@dataclass(frozen=True)
class VRNNSizes:
    """A VRNN; the defaults are the paper's for speech."""

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

    def build(self, dataset: Dataset, key: PRNGKeyArray) -> VRNN:
        """For observations like those of the data set."""
        return VRNN(
            dataset.observation_shape,
            head=head_for(dataset, log_var_range=(-20.0, 5.0)),
            key=key,
            **vars(self),
        )


@dataclass(frozen=True)
class SRNNSizes:
    """An SRNN; the defaults are the paper's for music."""

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

    def build(self, dataset: Dataset, key: PRNGKeyArray) -> SRNN:
        """For observations like those of the data set."""
        return SRNN(
            dataset.observation_shape,
            head=head_for(dataset, log_var_range=(-10.0, float("inf"))),
            key=key,
            **vars(self),
        )


@dataclass(frozen=True)
class SVGSizes:
    """An SVG with VGG coders; the defaults are the paper's for KTH."""

    latent_size: int = 512
    """Elements of z_t."""
    code_size: int = 128
    """Elements of an encoded frame."""
    recurrent_size: int = 256
    """Units of each LSTM."""
    channels: tuple[int, ...] = (64, 128, 256, 512)
    """Maps of each stage of the coders; frames have 4 pixels a side for each doubling."""
    convolutions: tuple[int, ...] = (2, 2, 3, 3)
    """Convolutions of each stage."""
    use_skips: bool = False
    """Hand the last frame's maps to the decoder. The paper's runs had none."""
    std: float = 1.0
    """The standard deviation of a pixel where learning starts."""

    def build(self, dataset: Dataset, key: PRNGKeyArray) -> SVG:
        """For frames like those of the data set."""
        if len(self.channels) != len(self.convolutions):
            raise ValueError(
                "`model.channels` and `model.convolutions` must have one number for each stage;"
                f" got {self.channels} and {self.convolutions}."
            )
        coder = VGG(tuple((c,) * n for c, n in zip(self.channels, self.convolutions, strict=True)))
        shape = dataset.observation_shape
        if len(shape) != 3 or shape[1:] != (coder.image_size, coder.image_size):
            raise ValueError(
                f"`model.channels` has {len(self.channels)} stages, for frames of"
                f" {coder.image_size}x{coder.image_size} pixels; {dataset.name!r} has observations"
                f" of shape {shape}. Give `--data.size {coder.image_size}`, or other stages."
            )
        family = _one_family(dataset, "SVG")
        is_binary = family.distribution is Bernoulli
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


@dataclass(frozen=True)
class TableSizes:
    """An SRNN for the columns of a table, each with its own family; None: by their number."""

    latent_size: int | None = None
    """Elements of z_t; by itself two more than the table has columns, from 4 to 16."""
    hidden_size: int | None = None
    """Units of the LSTM and of each network; 32 up to 8 columns, 64 up to 32, else 128."""

    def build(self, dataset: Dataset, key: PRNGKeyArray) -> SRNN:
        """For the columns of the table."""
        columns = dataset.num_elements
        hidden = self.hidden_size or (32 if columns <= 8 else 64 if columns <= 32 else 128)
        return SRNN(
            dataset.observation_shape,
            self.latent_size or min(max(columns + 2, 4), 16),
            recurrent_size=hidden,
            prior_size=hidden,
            decoder_size=hidden,
            num_decoder_layers=1,
            head=head_for(dataset, log_var_range=(-7.0, 3.0)),
            key=key,
        )


def head_for(dataset: Dataset, *, log_var_range: tuple[float, float]) -> Callable[..., Any]:
    """The output head for the family of a data set's observations."""
    if isinstance(dataset.family, tuple):
        return functools.partial(ColumnHead, families=dataset.family)
    family = _one_family(dataset, "this model")
    if family.distribution is Bernoulli:
        return BernoulliHead
    if family.distribution in (Normal, DiscretizedNormal):
        return functools.partial(VaryingNormalHead, width=family.width, log_var_range=log_var_range)
    raise ValueError(
        f"{dataset.name!r} has observations of family `{family.distribution.__name__}`, for which"
        " there is no output head."
    )


def _one_family(dataset: Dataset, what: str) -> Family:
    if isinstance(dataset.family, Family):
        return dataset.family
    raise ValueError(
        f"{dataset.name!r} is a table, whose columns have families of their own; {what} needs one"
        " for all elements. Train it as a table: `varfilter train FILE.csv`."
    )
