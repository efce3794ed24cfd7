"""Amortized variational filtering: a network that has learned to descend the free energy."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._ahead import scan_ahead
from varfilter._arguments import kind, require_key, require_positive
from varfilter._tree import detach, flat_size
from varfilter.contracts import FirstStep, first_step
from varfilter.inference.base import AbstractInference, Inferred, Memory, require_reparameterisable
from varfilter.inference.signal import PairedGradients
from varfilter.inference.update import NormAndLog, Shift
from varfilter.model import AbstractModel, State
from varfilter.nn import HighwayTrunk
from varfilter.observation import Observation


class Record(eqx.Module):
    """The inputs of one iteration: the iterate it started from and what it received there."""

    q: Any
    signal: Any


class Iterative(AbstractInference):
    """q_0 = p; repeat K times: q <- update(trunk([signal(q), q, (x)]), q)   (paper, eq. 13).

    - `signal`: dF/dq by `PairedGradients()` (the default) or `Gradients()`; or
      `PrecisionWeightedErrors()`. It is averaged over `num_samples` draws, or pairs of them.
    - `normalize`: applied to each input term by itself; `NormAndLog()` (the default), `SignedLog()`
      or `LayerNorm()`.
    - `hidden_size`: units of each of the `num_layers` highway ELU layers. None: four for each
      number that the network is shown (of the signal, of q and, if it is encoded, of x_t), as a
      power of two from 64 to 1,024, the paper's; so a latent of one element has 64.
    - `update`: `Shift` (the default), `Highway` or `LearnedStep`, or `MeanNormalized.of(...)` of
      one of them.
    - `encode_observation`: feed x_t, raw, as a further input.

    The paper's network is `signal=Gradients(), normalize=LayerNorm(), update=Highway,
    hidden_size=1024`, which needs latents of many elements; the defaults serve any size.

    It has no memory and no access to the model's state: all it knows of the past is the prior
    it starts from, and the gradients. That is why one architecture fits every model.
    """

    is_local: ClassVar[bool] = True
    signal: Any
    normalize: Callable[[Array], Array]
    trunk: Callable[..., Array]
    update: Any
    encode_observation: bool = eqx.field(static=True)
    num_iterations: int = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)

    def __init__(
        self,
        model: AbstractModel,
        *,
        update: Callable[..., Any] = Shift,
        signal: Any = None,
        normalize: Callable[[Array], Array] | None = None,
        encode_observation: bool = False,
        hidden_size: int | None = None,
        num_layers: int = 2,
        num_iterations: int = 1,
        num_samples: int = 1,
        key: PRNGKeyArray,
    ):
        self.signal = PairedGradients() if signal is None else signal
        self.normalize = NormAndLog() if normalize is None else normalize
        self.encode_observation = encode_observation
        self.num_iterations = require_positive("num_iterations", num_iterations)
        self.num_samples = require_positive("num_samples", num_samples)
        require_positive("num_layers", num_layers)
        require_key(key)
        _require_parts(self.signal, self.normalize, update)

        self.require_fitting(model)
        shapes = first_step(model)
        raw_size, in_size = self._input_sizes(model, shapes)
        if hidden_size is None:
            hidden_size = _hidden_size(raw_size)
        require_positive("hidden_size", hidden_size)
        key_trunk, key_update = jax.random.split(key)
        self.trunk = HighwayTrunk(in_size, hidden_size, num_layers, key=key_trunk)
        self.update = update(hidden_size, shapes.parameter_size, key=key_update)
        if self.update.needs_gradient and not self.signal.is_gradient:
            raise ValueError(
                f"`update` takes the raw gradient, but `signal` is `{type(self.signal).__name__}`."
                " Use `signal=Gradients()`, or `update=Shift`."
            )

    @classmethod
    def require_fitting(cls, model: AbstractModel) -> None:
        """Refuse latents without a gradient of their draws, which is what the network sees."""
        require_reparameterisable(cls.__name__, model)

    def with_num_iterations(self, num_iterations: int) -> "Iterative":
        """Keep the weights and change how many iterations are made: spend more time, or less."""
        clone = copy.copy(self)
        value = require_positive("num_iterations", num_iterations)
        object.__setattr__(clone, "num_iterations", value)  # a new object, not yet shared
        return clone

    def infer(
        self,
        model: AbstractModel,
        state: State,
        memory: Memory,
        observation: Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> Inferred:
        """Update K times, beginning at the prior."""
        # The signal is an input, not a path: no second derivatives (paper, section 3.2).
        model, state, observation = detach((model, state, observation))
        prior = model.prior(state)

        def iterate(q: Any, iteration: Array) -> Any:
            q = detach(q)  # each iteration learns from its own free energy alone
            signal, value = self.signal(
                q, model, state, observation.x, jax.random.fold_in(key, iteration),
                prior=prior, num_samples=self.num_samples, kl_weight=kl_weight,
            )  # fmt: skip
            record = detach(Record(q, signal))
            inputs = self._inputs(record.signal, record.q, observation.filled)
            return self._revised(record, *inputs), (record, value)

        iterations = jnp.arange(self.num_iterations)
        q, (records, values) = scan_ahead(iterate, prior, iterations)
        return Inferred(q, memory, values, records)

    def revise(self, record: Record, observation: Observation) -> Any:
        """Make one update of which all is at hand, so that its inputs are multiplied as one."""
        inputs = self._inputs(record.signal, record.q, observation.filled)
        return self._revised(record, jnp.concatenate(inputs))

    def _revised(self, record: Record, *inputs: Float[Array, " _part"]) -> Any:
        """Make one update: the only place where the network is called."""
        return self.update(self.trunk(*inputs), record.q, record.signal)

    def _inputs(self, signal: Any, q: Any, x: Float[Array, " *event"]) -> tuple[Array, ...]:
        """What the network sees: all terms, each normalised by itself, and x_t as it is."""
        terms = [jnp.ravel(term) for term in jax.tree.leaves(signal) + jax.tree.leaves(q)]
        if len({term.size for term in terms}) == 1:  # all at once: fewer and larger kernels
            inputs = jnp.ravel(jax.vmap(self.normalize)(jnp.stack(terms)))
        else:
            inputs = jnp.concatenate([self.normalize(term) for term in terms])
        return (inputs, jnp.ravel(x)) if self.encode_observation else (inputs,)

    def _input_sizes(self, model: AbstractModel, shapes: FirstStep) -> tuple[int, int]:
        """How many numbers the network is told of, and how many the normalisation makes of them."""

        def first(state: Any, prior: Any, x: Array, key: PRNGKeyArray) -> Any:
            signal, _ = self.signal(
                prior, model, state, x, key, prior=prior, num_samples=1, kl_weight=1.0
            )
            told = (signal, prior, x if self.encode_observation else None)
            return told, self._inputs(signal, prior, x)

        x = jax.ShapeDtypeStruct(shapes.observation_shape, jnp.result_type(float))
        key = jax.eval_shape(lambda: jax.random.key(0))
        told, inputs = eqx.filter_eval_shape(first, shapes.state, shapes.prior, x, key)
        return flat_size(told), flat_size(inputs)


def _hidden_size(raw_size: int) -> int:
    """Four units for each number that is shown, as a power of two from 64 to 1,024."""
    return min(max(64, 2 ** (4 * raw_size - 1).bit_length()), 1024)


def _require_parts(signal: Any, normalize: Any, update: Any) -> None:
    """Refuse classes for `signal` and `normalize`, and an instance for `update`, built here."""
    if isinstance(signal, type) or not hasattr(signal, "is_gradient"):
        raise TypeError(
            "`signal` must be `PairedGradients()`, `Gradients()` or `PrecisionWeightedErrors()`;"
            f" got {kind(signal)}."
        )
    if isinstance(normalize, type) or not callable(normalize):
        raise TypeError(
            "`normalize` must be `NormAndLog()`, `SignedLog()`, `LayerNorm()` or a function;"
            f" got {kind(normalize)}."
        )
    if isinstance(update, eqx.Module) or not callable(update):
        raise TypeError(
            "`update` must be a class, `Shift`, `Highway` or `LearnedStep`, or"
            f" `MeanNormalized.of(...)` of one; got {kind(update)}."
        )
