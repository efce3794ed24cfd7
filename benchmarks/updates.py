"""Whole training updates of the paper's models: their presets, their time and its parts."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from measure import Chain, Program, paced, peak_gib, shapes, side_by_side

from varfilter.distributions import Bernoulli
from varfilter.experiments import (
    AVF,
    EXPERIMENTS,
    Baseline,
    Experiment,
    SRNNSizes,
    SVGSizes,
    VRNNSizes,
)
from varfilter.experiments.models import PUBLISHED_MODELS, Observations
from varfilter.learning import EndToEnd, LearnerState, TimeParallel, step_by_step
from varfilter.learning.end_to_end import filter_batch
from varfilter.learning.state import Sequences, guarded_update, masked_mean
from varfilter.learning.time_parallel import (
    phi_gradients,
    record_problems,
    require_local,
    theta_gradients,
)

Row = dict[str, Any]
KEY = jax.random.key(0)
ONE = jnp.ones(())


@dataclass(frozen=True)
class Preset:
    """An experiment as it is measured: `num_seeds` learners at once, in one program.

    `one` takes one step of phi and one draw of z instead of the recipe's.
    """

    title: str
    experiment: str
    observations: str
    one: bool = False
    num_seeds: int = 1


PRESETS: dict[str, Preset] = {
    "music-one": Preset(
        "SRNN music, one phi step, one draw", "srnn-jsb-avf", "srnn-music", one=True
    ),
    "timit-one": Preset("SRNN TIMIT, one phi step", "srnn-timit-avf", "srnn-timit", one=True),
    "music-recipe": Preset("SRNN music, recipe", "srnn-jsb-avf", "srnn-music"),
    "timit-recipe": Preset("SRNN TIMIT, recipe", "srnn-timit-avf", "srnn-timit"),
    "music-seeds": Preset(
        "SRNN music, recipe, 8 seeds in one program", "srnn-jsb-avf", "srnn-music", num_seeds=8
    ),
    "timit-baseline": Preset(
        "SRNN TIMIT, baseline, end to end", "srnn-timit-baseline", "srnn-timit"
    ),
    "vrnn-recipe": Preset("VRNN TIMIT, recipe", "vrnn-timit-avf", "vrnn-timit"),
    "svg-one": Preset("SVG KTH, one phi step", "svg-kth-avf", "svg-kth", one=True),
    "music-baseline": Preset("SRNN music, baseline, end to end", "srnn-jsb-baseline", "srnn-music"),
}


@dataclass(frozen=True)
class Subject:
    """A preset made ready: the modules, the learner, its first state and a batch of data."""

    experiment: Experiment
    learner: TimeParallel | EndToEnd
    state: LearnerState
    batch: Sequences

    @property
    def num_steps(self) -> int:
        """The scored steps of each sequence, by which times are divided."""
        return self.batch.xs.shape[1]

    @property
    def size(self) -> Row:
        """What the figures are of."""
        found: Row = {"batch": self.batch.xs.shape[0], "steps": self.num_steps}
        if isinstance(self.learner, TimeParallel):
            found["phi_steps"] = self.learner.num_phi_steps
            found["draws"] = getattr(self.experiment.filter.inference, "num_samples", 1)
        return found


def prepare(
    preset: Preset,
    *,
    quick: bool,
    seed: int = 0,
    batch_size: int | None = None,
    num_steps: int | None = None,
) -> Subject:
    """Build the preset on random data of its shape: time does not depend on what they hold.

    `batch_size` and `num_steps`, the steps of a window with its first, replace the experiment's.
    """
    experiment, observations = (
        EXPERIMENTS[preset.experiment],
        PUBLISHED_MODELS[preset.observations][1],
    )
    if quick:
        experiment, observations = _tiny(experiment, observations)
    if preset.one:
        experiment = with_one_draw(experiment)
    key_model, key_filter, key_data = jax.random.split(jax.random.fold_in(KEY, seed), 3)
    model = experiment.model.build(observations, key_model)
    filter = experiment.filter.build(model, key_filter)
    learner = experiment.optimizer.learner(filter, 1000, complete=True)
    num_steps = num_steps or experiment.schedule.num_steps or 25
    shape = (batch_size or experiment.schedule.batch_size, num_steps)
    xs = random_data(observations, shape, key_data)
    batch = Sequences(xs[:, 1:], jnp.ones((shape[0], num_steps - 1), bool), xs[:, 0])
    return Subject(experiment, learner, learner.init(model, filter), batch)


def with_one_draw(experiment: Experiment) -> Experiment:
    """The same with one step of phi in an update, and one draw of z for its signal."""
    inference = experiment.filter.inference
    if isinstance(inference, AVF):
        inference = replace(inference, num_samples=1)
    return replace(
        experiment,
        filter=replace(experiment.filter, inference=inference),
        optimizer=replace(experiment.optimizer, num_phi_steps=1),
    )


def random_data(observations: Observations, shape: tuple[int, ...], key: Any) -> jax.Array:
    """Notes as sparse as music, or numbers as standardised sound or pixels have them."""
    shape = (*shape, *observations.observation_shape)
    family = observations.family
    if not isinstance(family, tuple) and family.distribution is Bernoulli:
        return jax.random.bernoulli(key, 0.05, shape).astype(jnp.float32)
    if len(observations.observation_shape) == 3:
        return jax.random.uniform(key, shape)
    return jax.random.normal(key, shape)


def measure_update(name: str, *, quick: bool, phases: bool, began: float) -> Iterator[Row]:
    """Rows of one preset: the whole update first, and then its parts."""
    preset = PRESETS[name]
    chain, subject = whole_update(preset, quick=quick)
    chain.launch()[0].block_until_ready()
    row: Row = {
        "kind": "update", "preset": name, "title": preset.title, **subject.size,
        "seeds": preset.num_seeds, "first_update_s": time.perf_counter() - began,
        "compile_s": chain.compile_seconds, "temporary_bytes": chain.temporary_bytes,
    }  # fmt: skip
    factor = 1e3 / subject.num_steps / preset.num_seeds
    spread = paced(chain.launch, jax.block_until_ready, seconds=0.2 if quick else 2.0)
    row |= {"ms_per_step": spread.times(factor), "peak_gib": peak_gib()}
    if not bool(jnp.all(jnp.isfinite(chain.launch()[0]))):
        raise SystemExit(f"{name}: the free energy is not finite")
    yield row
    if phases and preset.num_seeds == 1:
        seconds = 0.1 if quick else 1.0
        for part, spread, compile_s in _phases(subject, seconds):
            yield {
                "kind": "phase", "preset": name, "phase": part,
                "ms_per_step": spread.times(factor), "compile_s": compile_s,
            }  # fmt: skip


def measure_tape(name: str, *, quick: bool) -> Iterator[Row]:
    """The same update by one tape through the scan, instead of all steps at once."""
    subject = prepare(PRESETS[name], quick=quick)
    learner = subject.learner

    def tape(state: LearnerState, index: jax.Array, batch: Sequences) -> Any:
        theta, phi = step_by_step.gradients(
            state.model, state.filter, batch, jax.random.fold_in(KEY, index), ONE, complete=True
        )
        model, theta_state, _ = guarded_update(learner.theta, state.theta_state, state.model, theta)
        filter, phi_state, _ = guarded_update(learner.phi, state.phi_state, state.filter, phi)
        after = LearnerState(
            model, filter, theta_state, phi_state,
            state.num_updates + 1, state.num_skipped, state.last_skipped,
        )  # fmt: skip
        return after, ()

    chain = Chain(tape, subject.state, subject.batch)

    def launch() -> list:
        chain.launch()
        return chain.carry

    spread = paced(launch, jax.block_until_ready, seconds=0.2 if quick else 2.0)
    yield {
        "kind": "tape", "preset": name, **subject.size, "compile_s": chain.compile_seconds,
        "ms_per_step": spread.times(1e3 / subject.num_steps), "peak_gib": peak_gib(),
        "temporary_bytes": chain.temporary_bytes,
    }  # fmt: skip


def update_chain(subject: Subject) -> Chain:
    """The whole update of one learner, compiled."""
    learner = subject.learner

    def update(state: LearnerState, index: jax.Array, batch: Sequences) -> Any:
        key = jax.random.fold_in(KEY, index)
        state, metrics = learner.update(state, batch.xs, key, x0=batch.x0)
        return state, metrics.free_energy

    return Chain(update, subject.state, subject.batch)


def whole_update(preset: Preset, *, quick: bool) -> tuple[Chain, Subject]:
    """The whole update of all the preset's learners, compiled, and the first of them."""
    if preset.num_seeds == 1:
        subject = prepare(preset, quick=quick)
        return update_chain(subject), subject
    subjects = [prepare(preset, quick=quick, seed=seed) for seed in range(preset.num_seeds)]
    first = subjects[0]
    _, static = eqx.partition(first.state, eqx.is_array)
    stacked = _stacked([eqx.filter(subject.state, eqx.is_array) for subject in subjects])

    def updates(arrays: Any, index: jax.Array, batches: Sequences) -> Any:
        def update(arrays: Any, batch: Sequences, seed: jax.Array) -> Any:
            key = jax.random.fold_in(jax.random.fold_in(KEY, seed), index)
            state = eqx.combine(arrays, static)
            state, metrics = first.learner.update(state, batch.xs, key, x0=batch.x0)
            return eqx.filter(state, eqx.is_array), metrics.free_energy

        return jax.vmap(update)(arrays, batches, jnp.arange(preset.num_seeds))

    return Chain(updates, stacked, _stacked([subject.batch for subject in subjects])), first


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _phases(subject: Subject, seconds: float) -> Iterator[tuple[str, Any, float]]:
    """(phase, time, seconds to compile) of each part, as a program of its own.

    Their sum is not quite the whole: a program of its own reads its inputs and writes its results.
    """
    is_local = isinstance(subject.learner, TimeParallel)
    builders, chain = (_local_parts if is_local else _end_to_end_parts)(subject)
    programs = side_by_side(builders)
    results: dict[str, Any] = {}
    for name, program in programs.items():
        program.bind(*chain(name, results))
        results[name] = program.tree(jax.block_until_ready(program.launch()))
        yield name, program.spread(seconds=seconds), program.compile_seconds


def _local_parts(subject: Subject) -> tuple[dict[str, Callable[[], Program]], Callable[..., Any]]:
    learner, state, batch = subject.learner, subject.state, subject.batch
    assert isinstance(learner, TimeParallel)
    local, num_slices = require_local(state.filter), learner.num_phi_steps
    count = batch.mask.size

    def filtering(model: Any, filter: Any, batch: Sequences, index: jax.Array) -> Any:
        key = jax.random.fold_in(KEY, index)
        return record_problems(model, filter, batch, key, ONE, complete=True)

    def theta(model: Any, filter: Any, x0: jax.Array, problems: Any) -> Any:
        return theta_gradients(model, filter, x0, problems, ONE)

    def phi(filter: Any, model: Any, problems: Any, scored: Any, order: jax.Array) -> Any:
        slices = jax.tree.map(
            lambda leaf: leaf.reshape(count, *leaf.shape[2:])[order], (problems, scored)
        )
        free, static = eqx.partition(filter, eqx.is_inexact_array)

        def step(free: Any, piece: Any) -> Any:
            gradient = phi_gradients(eqx.combine(free, static), model, *piece, ONE)
            # The next step must wait for this one, as it does for the optimizer.
            return jax.tree.map(lambda p, g: p - 1e-6 * g, free, gradient), None

        return jax.lax.scan(step, free, slices)[0]

    def optimizer(state: LearnerState, theta: Any, phi: Any) -> Any:
        model, theta_state, _ = guarded_update(learner.theta, state.theta_state, state.model, theta)
        carry, static = eqx.partition((state.filter, state.phi_state), eqx.is_array)

        def step(carry: Any, _: None) -> Any:
            filter, phi_state = eqx.combine(carry, static)
            filter, phi_state, _ = guarded_update(learner.phi, phi_state, filter, phi)
            return eqx.filter((filter, phi_state), eqx.is_array), None

        return model, theta_state, jax.lax.scan(step, carry, None, length=num_slices)[0]

    order = jax.random.permutation(KEY, count)
    order = jnp.resize(order, (num_slices, -(-count // num_slices)))
    index = jnp.zeros((), jnp.int32)
    problems, x0, _ = shapes(filtering, state.model, local, batch, index)
    gradient, scored = shapes(theta, state.model, local, x0, problems)
    like_phi = eqx.filter(local, eqx.is_inexact_array)
    builders = {
        "filtering": lambda: Program(filtering, state.model, local, batch, index),
        "theta": lambda: Program(theta, state.model, local, x0, problems),
        "phi": lambda: Program(phi, local, state.model, problems, scored, order),
        "optimizer": lambda: Program(optimizer, state, gradient, like_phi),
    }

    def arguments(name: str, results: dict[str, Any]) -> tuple[Any, ...]:
        match name:
            case "filtering":
                return state.model, local, batch, index
            case "theta":
                return state.model, local, results["filtering"][1], results["filtering"][0]
            case "phi":
                return local, state.model, results["filtering"][0], results["theta"][1], order
        return state, results["theta"][0], like_phi

    return builders, arguments


def _end_to_end_parts(
    subject: Subject,
) -> tuple[dict[str, Callable[[], Program]], Callable[..., Any]]:
    """The filter alone; the gradient of its bound, which filters too; both optimizers."""
    learner, state, batch = subject.learner, subject.state, subject.batch

    def filtering(model: Any, filter: Any, batch: Sequences, index: jax.Array) -> Any:
        key = jax.random.fold_in(KEY, index)
        bound, _ = filter_batch(model, filter, batch, key, ONE, complete=True)
        return masked_mean(-bound, batch.mask)

    def gradient(model: Any, filter: Any, batch: Sequences, index: jax.Array) -> Any:
        return eqx.filter_grad(lambda modules: filtering(*modules, batch, index))((model, filter))

    def optimizer(state: LearnerState, theta: Any, phi: Any) -> Any:
        model = guarded_update(learner.theta, state.theta_state, state.model, theta)
        return model, guarded_update(learner.phi, state.phi_state, state.filter, phi)

    modules = state.model, state.filter, batch, jnp.zeros((), jnp.int32)
    gradients = shapes(gradient, *modules)
    builders = {
        "filtering": lambda: Program(filtering, *modules),
        "gradient": lambda: Program(gradient, *modules),
        "optimizer": lambda: Program(optimizer, state, *gradients),
    }

    def arguments(name: str, results: dict[str, Any]) -> tuple[Any, ...]:
        return (state, *results["gradient"]) if name == "optimizer" else modules

    return builders, arguments


def _tiny(experiment: Experiment, observations: Observations) -> tuple[Experiment, Observations]:
    """The same kinds of parts, as small as they go."""
    shape = observations.observation_shape
    match experiment.model:
        case SRNNSizes():
            sizes: Any = SRNNSizes(4, 8, 8, experiment.model.num_prior_layers, 8)
            shape = (6,)
        case VRNNSizes():
            sizes, shape = VRNNSizes(4, 8, 8, 8, 8, 8, 1), (6,)
        case _:
            sizes = SVGSizes(4, 4, 4, channels=(4,), convolutions=(1,))
            shape = (1, 8, 8)
    inference = experiment.filter.inference
    if isinstance(inference, AVF):
        inference = replace(inference, hidden_size=8, num_samples=min(inference.num_samples, 2))
    elif isinstance(inference, Baseline):
        inference = replace(inference, hidden_size=8)
    optimizer = replace(experiment.optimizer, num_phi_steps=2)
    schedule = replace(experiment.schedule, batch_size=2, num_steps=4)
    experiment = replace(
        experiment, model=sizes, optimizer=optimizer, schedule=schedule,
        filter=replace(experiment.filter, inference=inference),
    )  # fmt: skip
    return experiment, dataclasses.replace(observations, observation_shape=shape)
