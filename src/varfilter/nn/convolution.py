"""Convolutions that are as fast inside a loop over time as outside of it."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Image = Float[Array, "_channels _height _width"]
Kernel = Float[Array, "_out _in _size _size"]


class Conv(eqx.Module):
    """W * x + b with square kernels; weights and biases start uniform in ±1/sqrt(fan in).

    `upsample` puts that many minus one zeros between the pixels first, which makes it a
    transposed convolution; `padding` pixels of zeros are put around.

    The channels may come in parts, each convolved by itself, so that a filter can convolve one
    that is known for all steps ahead of its loop; channels that are left out at the end are zero,
    and cost nothing.
    """

    weight: Kernel
    bias: Float[Array, " out"]
    padding: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    upsample: int = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int,
        *,
        padding: int = 0,
        stride: int = 1,
        upsample: int = 1,
        key: PRNGKeyArray,
    ):
        key_weight, key_bias = jax.random.split(key)
        limit = (in_channels * size**2) ** -0.5
        shape = (out_channels, in_channels, size, size)
        self.weight = jax.random.uniform(key_weight, shape, minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(key_bias, (out_channels,), minval=-limit, maxval=limit)
        self.padding = padding
        self.stride = stride
        self.upsample = upsample

    def __call__(self, *parts: Image) -> Image:
        """Compute the maps."""
        maps, begin = self.bias[:, None, None], 0
        for part in parts:
            end = begin + part.shape[0]
            maps = maps + self._maps(part, self.weight[:, begin:end])
            begin = end
        return maps

    def _maps(self, image: Image, weight: Kernel) -> Image:
        edge, between = self.padding, self.upsample - 1
        image = jax.lax.pad(
            image, jnp.zeros((), image.dtype), ((0, 0, 0), *[(edge, edge, between)] * 2)
        )
        # XLA on the CPU runs a convolution in a loop some fifty times slower than outside of
        # one, and a filter is a loop; a matrix product has no such trouble.
        return jax.lax.platform_dependent(
            image,
            weight,
            cpu=functools.partial(_by_product, stride=self.stride),
            default=functools.partial(_by_convolution, stride=self.stride),
        )


def _by_convolution(image: Image, weight: Kernel, *, stride: int) -> Image:
    return jax.lax.conv_general_dilated(image[None], weight, (stride, stride), "VALID")[0]


def _by_product(image: Image, weight: Kernel, *, stride: int) -> Image:
    """Convolve by one product of the kernel with all patches of the image."""
    out_channels, in_channels, size, _ = weight.shape
    height, width = ((n - size) // stride + 1 for n in image.shape[1:])

    def shifted(row: int, column: int) -> Image:
        ends = (row + stride * (height - 1) + 1, column + stride * (width - 1) + 1)
        return jax.lax.slice(image, (0, row, column), (in_channels, *ends), (1, stride, stride))

    patches = [shifted(row, column) for row in range(size) for column in range(size)]
    flat = jnp.concatenate(patches).reshape(-1, height * width)
    kernel = weight.transpose(0, 2, 3, 1).reshape(out_channels, -1)
    return (kernel @ flat).reshape(out_channels, height, width)
