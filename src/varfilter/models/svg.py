"""SVG: stochastic video generation with a learned prior."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_all_positive, require_key
from varfilter.distributions import Normal
from varfilter.model import AbstractModel
from varfilter.models.heads import LatentHead, NormalImage
from varfilter.nn import LSTM, VGG, linear
from varfilter.nn.coders import Skips
from varfilter.nn.convolution import Image
from varfilter.nn.lstm import Hidden

# Of the usual size: where learning starts, the decoder's last layer adds little to the last frame.
LITTLE = 0.1


class SVGFeatures(eqx.Module):
    """The code h_t of a frame, what it adds to the gates of two LSTMs, and its skip maps.

    `frame` is x_t itself, where the next one is told by its change.
    """

    code: Float[Array, " code"]
    prior_input: Float[Array, " gates"]
    predictor_input: Float[Array, " gates"]
    skips: Skips | None
    frame: Image | None = None


class LastFrame(eqx.Module):
    """x_{t-1} in [0, 1], how far it is from x_{t-2}, and 1 if it is known, else 0."""

    frame: Image
    change: Image
    is_known: Float[Array, ""]


class SVGState(eqx.Module):
    """The LSTMs' states, and what x_{t-1} sends to the predictor (h_{t-1}) and the decoder.

    `last` is None where a frame is predicted without the last one.
    """

    prior: Hidden
    predictor: tuple[Hidden, Hidden]
    predictor_input: Float[Array, " gates"]
    skips: Skips | None
    last: LastFrame | None = None


class SVG(AbstractModel):
    """h_t = encoder(x_t);  z_t ~ N(LSTM_prior(h_{t-1}));  g_t = LSTM_predictor([z_t, h_{t-1}]);
    x_t ~ head(decoder(g_t, skips of x_{t-1}))   (Denton, Fergus 2018; the learned prior).

    - `coder`: `VGG()` or `DCGAN()`; it fixes the side of the images.
    - `head`: from the decoder's maps to the distribution of a frame: `NormalImage` or
      `BernoulliImage`; or `NormalChange` or `BernoulliChange`, which are told x_{t-1} too, and say
      what changes. With these the decoder sees, beside its maps at each of its stages, x_{t-1}
      and how it differs from x_{t-2}, in units of the head's `std`: a camera that stands still
      need not be learned, and what moves moves on.
    - `use_skips`: the decoder sees the maps of the last frame. The original AVF code puts
      zeros in their place, which `use_skips=False` does.
    """

    encoder: Any
    prior_lstm: LSTM
    prior_head: LatentHead
    predictor: tuple[LSTM, LSTM]
    predictor_out: eqx.nn.Linear
    decoder: Any
    head: Any
    use_skips: bool = eqx.field(static=True)
    from_last_frame: bool = eqx.field(static=True)
    latent_size: int = eqx.field(static=True)
    code_size: int = eqx.field(static=True)
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(
        self,
        channels: int = 1,
        latent_size: int = 512,
        *,
        coder: Any = None,
        code_size: int = 128,
        recurrent_size: int = 256,
        head: Any = None,
        use_skips: bool = True,
        key: PRNGKeyArray,
    ):
        require_all_positive(
            channels=channels,
            latent_size=latent_size,
            code_size=code_size,
            recurrent_size=recurrent_size,
        )
        require_key(key)
        coder = VGG() if coder is None else coder
        head = NormalImage() if head is None else head
        keys = jax.random.split(key, 8)
        self.encoder = coder.encoder(channels, code_size, key=keys[0])
        self.prior_lstm = LSTM(code_size, recurrent_size, key=keys[1])
        self.prior_head = LatentHead(recurrent_size, latent_size, keys=keys[2:4])
        self.predictor = (
            LSTM(code_size, recurrent_size, late_size=latent_size, key=keys[4]),
            LSTM(recurrent_size, recurrent_size, key=keys[5]),
        )
        self.predictor_out = linear(recurrent_size, code_size, key=keys[6])
        self.from_last_frame = getattr(head, "is_of_change", False)
        # The last frame, and its change.
        num_beside = 2 * channels if self.from_last_frame else 0
        decoder = coder.decoder(code_size, head.num_maps * channels, num_beside, key=keys[7])
        if self.from_last_frame:
            small = jax.tree.map(lambda weight: LITTLE * weight, decoder.last)
            decoder = eqx.tree_at(lambda decoder: decoder.last, decoder, small)
        self.decoder = decoder
        self.head = head
        self.use_skips = use_skips
        self.latent_size = latent_size
        self.code_size = code_size
        self.image_shape = (channels, coder.image_size, coder.image_size)

    def init(self, x0: Float[Array, "channels height width"] | None = None) -> SVGState:
        """The learned states after `x0`; without it, after a code and skip maps of zeros."""
        code, skips = self._zero_maps() if x0 is None else self.encoder(x0 - 0.5)
        lower, upper = self.predictor
        return self._next_state(
            self.prior_lstm.init(),
            (lower.init(), upper.init()),
            self._features(code, skips, x0),
            self._first(x0),
        )

    def embed(self, x: Float[Array, "channels height width"]) -> SVGFeatures:
        """The code h_t of the frame, ready for both LSTMs."""
        code, skips = self.encoder(x - 0.5)
        return self._features(code, skips, x)

    def prior(self, state: SVGState) -> Normal:
        """p(z_t | x_<t)."""
        hidden, _ = state.prior
        return self.prior_head(hidden)

    def emission(self, state: SVGState, z: Float[Array, " latent"]) -> Any:
        """p(x_t | x_<t, z_<=t), decoded from g_t."""
        _, (hidden, _) = self._step_predictor(state, z)
        g = jnp.tanh(self.predictor_out(hidden))
        last = state.last
        if last is None:
            return self.head(self.decoder(g, state.skips))
        # Of what moves a change is a hundred times the noise: about its logarithm is told.
        change = jnp.arcsinh(last.change / self.head.std)
        beside = jnp.concatenate([last.frame - 0.5, change])
        return self.head(self.decoder(g, state.skips, beside), last.frame, last.is_known)

    def advance(self, state: SVGState, z: Array, features: SVGFeatures) -> SVGState:
        """Keep the predictor's states after z_t; feed h_t to the prior's LSTM."""
        predictor = self._step_predictor(state, z)
        return self._next_state(state.prior, predictor, features, self._after(state.last, features))

    def _features(self, code: Array, skips: Skips, frame: Array | None) -> SVGFeatures:
        return SVGFeatures(
            code,
            self.prior_lstm.project(code),
            self.predictor[0].project(code),
            skips if self.use_skips else None,
            frame if self.from_last_frame else None,
        )

    def _first(self, x0: Array | None) -> LastFrame | None:
        """The last frame before the first step: `x0`, or one that is not known."""
        if not self.from_last_frame:
            return None
        dtype = jnp.result_type(float)
        if x0 is None:
            grey = jnp.full(self.image_shape, 0.5, dtype)
            return LastFrame(grey, jnp.zeros_like(grey), jnp.zeros((), dtype))
        frame = self.head.rounded(x0)
        return LastFrame(frame, jnp.zeros_like(frame), jnp.ones((), dtype))

    def _after(self, last: LastFrame | None, features: SVGFeatures) -> LastFrame | None:
        """The last frame of the next step: x_t, and how far it is from the one before it."""
        if last is None or features.frame is None:
            return None
        frame = self.head.rounded(features.frame)
        change = last.is_known * (frame - last.frame)
        return LastFrame(frame, change, jnp.ones_like(last.is_known))

    def _next_state(
        self,
        prior: Hidden,
        predictor: tuple[Hidden, Hidden],
        features: SVGFeatures,
        last: LastFrame | None,
    ) -> SVGState:
        """The prior's LSTM takes the frame in at once; the predictor's waits for the next z."""
        return SVGState(
            self.prior_lstm(features.prior_input, prior),
            predictor,
            features.predictor_input,
            features.skips,
            last,
        )

    def _step_predictor(self, state: SVGState, z: Array) -> tuple[Hidden, Hidden]:
        """The states of the predictor's two layers after [z_t, h_{t-1}]."""
        lower, upper = self.predictor
        lower_state = lower(state.predictor_input, state.predictor[0], z)
        lower_hidden, _ = lower_state
        return lower_state, upper(upper.project(lower_hidden), state.predictor[1])

    def _zero_maps(self) -> tuple[Array, Skips]:
        """Zeros of the shapes of a frame's code and skip maps."""
        shapes = jax.eval_shape(self.encoder, jnp.zeros(self.image_shape))
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
