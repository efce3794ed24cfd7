"""The models of the paper and of its code at their published sizes: a row of the spec each."""

import functools

from jaxtyping import PRNGKeyArray

from varfilter.models.heads import BernoulliImage, VaryingNormalHead
from varfilter.models.srnn import SRNN
from varfilter.models.svg import SVG
from varfilter.models.vrnn import VRNN
from varfilter.nn import DCGAN, VGG

# The width of one 16-bit level after standardising TIMIT, as the original code has it (spec 1.3).
# It depends on the standard deviation of the training data: give your own.
TIMIT_WIDTH = 0.0018190742


def vrnn_timit(*, width: float | None = TIMIT_WIDTH, key: PRNGKeyArray) -> VRNN:
    """Speech in frames of 200 samples (spec 3.1); `width` as in `VaryingNormalHead`."""
    return VRNN(head=functools.partial(VaryingNormalHead, width=width), key=key)


def vrnn_blizzard(*, width: float | None = TIMIT_WIDTH, key: PRNGKeyArray) -> VRNN:
    """As TIMIT, with an LSTM of twice the size (spec 3.2)."""
    head = functools.partial(VaryingNormalHead, width=width)
    return VRNN(recurrent_size=4000, head=head, key=key)


def vrnn_handwriting(*, key: PRNGKeyArray) -> VRNN:
    """IAM-OnDB pen strokes: two offsets and whether the pen is up, as a density (spec 3.2)."""
    return VRNN(
        3,
        50,
        recurrent_size=1200,
        data_feature_size=250,
        latent_feature_size=150,
        prior_size=150,
        decoder_size=250,
        num_layers=1,
        key=key,
    )


def srnn_timit(*, width: float | None = TIMIT_WIDTH, key: PRNGKeyArray) -> SRNN:
    """Speech in frames of 200 samples (spec 4.1)."""
    return SRNN(
        200,
        256,
        recurrent_size=1024,
        prior_size=512,
        num_prior_layers=2,
        decoder_size=512,
        num_decoder_layers=2,
        head=functools.partial(VaryingNormalHead, width=width, log_var_range=(-10.0, float("inf"))),
        key=key,
    )


def srnn_music(*, key: PRNGKeyArray) -> SRNN:
    """Piano rolls of 88 notes, for all four sets (spec 4.1)."""
    return SRNN(88, 100, key=key)


def svg_kth(*, latent_size: int = 512, use_skips: bool = True, key: PRNGKeyArray) -> SVG:
    """Grey 64x64 films of people (spec 5.1). The paper's runs had no skips."""
    return SVG(1, latent_size, coder=VGG(), use_skips=use_skips, key=key)


def svg_bair(*, use_skips: bool = True, key: PRNGKeyArray) -> SVG:
    """Colour 64x64 films of a robot arm (spec 5.1)."""
    return SVG(3, 64, coder=VGG(), use_skips=use_skips, key=key)


def svg_digits(*, use_skips: bool = True, key: PRNGKeyArray) -> SVG:
    """Black and white 64x64 films of moving digits (spec 5.1)."""
    return SVG(1, 10, coder=DCGAN(), head=BernoulliImage(), use_skips=use_skips, key=key)
