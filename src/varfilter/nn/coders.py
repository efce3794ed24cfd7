"""Image coders: from a frame to a short code with skip maps, and back."""

import itertools
from collections.abc import Iterable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.nn.convolution import Conv, Image

Code = Float[Array, " _code"]
Skips = tuple[Image, ...]

# Batch normalisation, as published, would make one example's gradient depend on the rest of the
# batch, and AVF's signal with it; and running statistics would be a state that training changes.
# The statistics of a group of channels belong to one image alone. As many parameters, the same
# function in training and evaluation, and a batch of one is no special case.
CHANNELS_PER_GROUP = 16


class Convolution(eqx.Module):
    """A (transposed) convolution, then group normalisation, then a leaky ReLU of slope 0.2."""

    convolution: Conv
    normalize: eqx.nn.GroupNorm

    def __init__(self, convolution: Conv):
        self.convolution = convolution
        self.normalize = group_norm(convolution.bias.size)

    def __call__(self, *parts: Image) -> Image:
        """Compute the layer's maps."""
        return jax.nn.leaky_relu(self.normalize(self.convolution(*parts)), 0.2)


class ToCode(eqx.Module):
    """The encoders' last layer: 4x4 maps to a vector in (-1, 1)."""

    convolution: Conv
    normalize: eqx.nn.GroupNorm

    def __init__(self, in_channels: int, code_size: int, *, key: PRNGKeyArray):
        self.convolution = Conv(in_channels, code_size, 4, key=key)
        self.normalize = group_norm(code_size)

    def __call__(self, image: Image) -> Code:
        """Compute the code."""
        return jnp.tanh(self.normalize(self.convolution(image)))[:, 0, 0]


class VGGEncoder(eqx.Module):
    """Stages of 3x3 convolutions, each ended by a 2x2 max-pool; the maps before it are skips."""

    stages: tuple[tuple[Convolution, ...], ...]
    last: ToCode

    def __init__(
        self, channels: int, code_size: int, widths: Sequence[Sequence[int]], *, key: PRNGKeyArray
    ):
        keys = _keys(key)
        stages = []
        for stage in widths:
            sizes = [channels, *stage]
            stages.append(
                tuple(
                    Convolution(Conv(a, b, 3, padding=1, key=next(keys)))
                    for a, b in itertools.pairwise(sizes)
                )
            )
            channels = stage[-1]
        self.stages = tuple(stages)
        self.last = ToCode(channels, code_size, key=next(keys))

    def __call__(self, image: Image) -> tuple[Code, Skips]:
        """Return the code, and the maps before each pooling."""
        skips = []
        for stage in self.stages:
            for layer in stage:
                image = layer(image)
            skips.append(image)
            image = max_pool(image)
        return self.last(image), tuple(skips)


class VGGDecoder(eqx.Module):
    """The encoder backwards: nearest-neighbour upsampling, the skip beside it, 3x3 convolutions."""

    first: Convolution
    stages: tuple[tuple[Convolution, ...], ...]
    last: Conv

    def __init__(
        self,
        code_size: int,
        out_maps: int,
        widths: Sequence[Sequence[int]],
        num_beside: int,
        *,
        key: PRNGKeyArray,
    ):
        keys = _keys(key)
        deepest = widths[-1][-1]
        self.first = Convolution(Conv(code_size, deepest, 4, padding=3, key=next(keys)))
        stages = []
        for index in reversed(range(len(widths))):
            width, count = widths[index][-1], len(widths[index])
            sizes = [2 * width + num_beside] + [width] * (count - 1)
            if index > 0:
                sizes.append(widths[index - 1][-1])
            elif count == 1:  # one layer at least: the skip has to be taken in
                sizes.append(width)
            stages.append(
                tuple(
                    Convolution(Conv(a, b, 3, padding=1, key=next(keys)))
                    for a, b in itertools.pairwise(sizes)
                )
            )
        self.stages = tuple(stages)
        self.last = Conv(widths[0][-1], out_maps, 3, padding=1, key=next(keys))

    def __call__(self, code: Code, skips: Skips | None, beside: Image | None = None) -> Image:
        """Compute the output maps, which are unbounded; None stands for skips of zeros.

        `beside` are maps of the size of the output, which each stage sees at its own size.
        """
        image = self.first(code[:, None, None])
        for stage, skip in zip(self.stages, _from_the_deepest(skips), strict=False):
            image = jnp.repeat(jnp.repeat(image, 2, axis=1), 2, axis=2)
            image = stage[0](image, *_shrunk(beside, image), *skip)
            for layer in stage[1:]:
                image = layer(image)
        return self.last(image)


class DCGANEncoder(eqx.Module):
    """4x4 convolutions of stride two; the maps after each are skips."""

    layers: tuple[Convolution, ...]
    last: ToCode

    def __init__(self, channels: int, code_size: int, widths: Sequence[int], *, key: PRNGKeyArray):
        keys = _keys(key)
        sizes = [channels, *widths]
        self.layers = tuple(
            Convolution(Conv(a, b, 4, padding=1, stride=2, key=next(keys)))
            for a, b in itertools.pairwise(sizes)
        )
        self.last = ToCode(widths[-1], code_size, key=next(keys))

    def __call__(self, image: Image) -> tuple[Code, Skips]:
        """Return the code, and the maps of each layer."""
        skips = []
        for layer in self.layers:
            image = layer(image)
            skips.append(image)
        return self.last(image), tuple(skips)


class DCGANDecoder(eqx.Module):
    """4x4 transposed convolutions of stride two, each on its input and the skip beside it."""

    layers: tuple[Convolution, ...]
    last: Conv

    def __init__(
        self,
        code_size: int,
        out_maps: int,
        widths: Sequence[int],
        num_beside: int,
        *,
        key: PRNGKeyArray,
    ):
        keys = _keys(key)
        deep = list(reversed(widths))
        first = Convolution(Conv(code_size, deep[0], 4, padding=3, key=next(keys)))
        self.layers = (
            first,
            *(
                Convolution(Conv(2 * a + num_beside, b, 4, padding=2, upsample=2, key=next(keys)))
                for a, b in itertools.pairwise(deep)
            ),
        )
        last_size = 2 * deep[-1] + num_beside
        self.last = Conv(last_size, out_maps, 4, padding=2, upsample=2, key=next(keys))

    def __call__(self, code: Code, skips: Skips | None, beside: Image | None = None) -> Image:
        """Compute the output maps, which are unbounded; None stands for skips of zeros.

        `beside` are maps of the size of the output, which each layer sees at its own size.
        """
        parts = (code[:, None, None],)
        for layer, skip in zip(self.layers, _from_the_deepest(skips), strict=False):
            image = layer(*parts)
            parts = image, *_shrunk(beside, image), *skip
        return self.last(*parts)


class VGG(eqx.Module):
    """A pair of VGG coders; the defaults are VGG-64, for images of 64x64."""

    widths: tuple[tuple[int, ...], ...] = eqx.field(
        static=True, default=((64, 64), (128, 128), (256, 256, 256), (512, 512, 512))
    )

    @property
    def image_size(self) -> int:
        """The side of the square images: 4 pixels doubled by each stage."""
        return 4 * 2 ** len(self.widths)

    def encoder(self, channels: int, code_size: int, *, key: PRNGKeyArray) -> VGGEncoder:
        """Build an encoder with fresh parameters."""
        return VGGEncoder(channels, code_size, self.widths, key=key)

    def decoder(
        self, code_size: int, out_maps: int, num_beside: int = 0, *, key: PRNGKeyArray
    ) -> VGGDecoder:
        """Build a decoder with fresh parameters, to see `num_beside` maps beside its own."""
        return VGGDecoder(code_size, out_maps, self.widths, num_beside, key=key)


class DCGAN(eqx.Module):
    """A pair of DCGAN coders; the defaults are DCGAN-64, for images of 64x64."""

    widths: tuple[int, ...] = eqx.field(static=True, default=(64, 128, 256, 512))

    @property
    def image_size(self) -> int:
        """The side of the square images: 4 pixels doubled by each layer."""
        return 4 * 2 ** len(self.widths)

    def encoder(self, channels: int, code_size: int, *, key: PRNGKeyArray) -> DCGANEncoder:
        """Build an encoder with fresh parameters."""
        return DCGANEncoder(channels, code_size, self.widths, key=key)

    def decoder(
        self, code_size: int, out_maps: int, num_beside: int = 0, *, key: PRNGKeyArray
    ) -> DCGANDecoder:
        """Build a decoder with fresh parameters, to see `num_beside` maps beside its own."""
        return DCGANDecoder(code_size, out_maps, self.widths, num_beside, key=key)


def group_norm(channels: int) -> eqx.nn.GroupNorm:
    """Normalise groups of 16 channels; where 16 does not divide them, all are one group."""
    is_whole = channels % CHANNELS_PER_GROUP == 0
    return eqx.nn.GroupNorm(channels // CHANNELS_PER_GROUP if is_whole else 1, channels)


def max_pool(image: Image) -> Image:
    """Keep the largest of each 2x2 pixels.

    By pairs: the gradient of `jnp.max` divides by how many elements equal the maximum, and is
    NaN where XLA computes those twice, in two ways that round differently.
    """
    rows = jnp.maximum(image[:, ::2], image[:, 1::2])
    return jnp.maximum(rows[:, :, ::2], rows[:, :, 1::2])


def _shrunk(beside: Image | None, like: Image) -> tuple[Image, ...]:
    """What is seen beside the maps of a stage, by the means of squares of pixels; or nothing."""
    if beside is None:
        return ()
    side, times = like.shape[1], beside.shape[1] // like.shape[1]
    return (beside.reshape(-1, side, times, side, times).mean(axis=(2, 4)),)


def _from_the_deepest(skips: Skips | None) -> Iterable[tuple[Image, ...]]:
    """What is put beside the maps of each stage of a decoder: a skip, or nothing."""
    return itertools.repeat(()) if skips is None else ((skip,) for skip in reversed(skips))


def _keys(key: PRNGKeyArray):
    while True:
        key, now = jax.random.split(key)
        yield now
