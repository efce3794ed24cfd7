"""A trained filter at work: whole songs scored, and observations pushed as they arrive."""

import functools
import itertools
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import Chain, paced, peak_gib
from updates import KEY, PRESETS, Row, prepare

import varfilter as vf
from varfilter.data import Dataset, Ragged
from varfilter.experiments.models import PUBLISHED_MODELS
from varfilter.filtering import start, step
from varfilter.inference import Gradients, Highway, LayerNorm
from varfilter.models.heads import NormalHead
from varfilter.training.evaluation import HeldOut

# As the validation part of Piano-midi.de: 12 songs, 8,540 steps, the longest over 2,000.
SONG_STEPS = np.geomspace(120, 2070, 12).astype(int)
NUM_STREAMS = (1, 32, 1024)


def measure_evaluation(*, quick: bool) -> Iterator[Row]:
    """Whole songs under the recipe's filter (64 draws), and under the baseline."""
    for name in ("music-recipe", "music-baseline"):
        subject = prepare(PRESETS[name], quick=quick)
        lengths = np.array([3, 5, 9]) if quick else SONG_STEPS
        size = subject.batch.xs.shape[-1]
        rolls = np.random.default_rng(0).random((lengths.sum(), size)) < 0.05
        part = Ragged(rolls.astype(np.float32), lengths)
        family = PUBLISHED_MODELS["srnn-music"][1].family
        songs = HeldOut(Dataset("songs", part, part, part, family))

        def score(songs: HeldOut = songs, subject: Any = subject) -> Any:
            return songs.evaluate(subject.state.filter, subject.state.model, KEY)

        begin = time.perf_counter()
        score()
        first = time.perf_counter() - begin
        spread = paced(score, lambda scored: scored, seconds=0.2 if quick else 4.0)
        yield {
            "kind": "evaluation", "preset": name, "songs": len(lengths),
            "steps": int(lengths.sum()), "longest": int(lengths.max()),
            "seconds": spread.times(1.0), "first_s": first, "peak_gib": peak_gib(),
        }  # fmt: skip


def measure_streams(*, quick: bool) -> Iterator[Row]:
    """One stream pushed as a user does, and many streams by `vmap` of one step."""
    subjects = {"sensors": sensors(), "music": _music(quick=quick)}
    for name, (model, filter) in subjects.items():
        xs = _observations(name, model, 64)
        yield _pushes(name, model, filter, xs, num_pushes=50 if quick else 2000)
        for count in NUM_STREAMS:
            yield _together(name, model, filter, xs, count, quick=quick)


def sensors() -> tuple[vf.SRNN, vf.VariationalFilter]:
    """A model of eight sensors: x 8, z 8, h 64, and AVF with one iteration."""
    model = vf.SRNN(
        8, 8, recurrent_size=64, prior_size=64, decoder_size=64, num_decoder_layers=1,
        head=NormalHead, key=KEY,
    )  # fmt: skip
    network = functools.partial(
        vf.Iterative, signal=Gradients(), normalize=LayerNorm(), update=Highway
    )
    return model, vf.VariationalFilter(network(model, hidden_size=64, num_layers=1, key=KEY))


def _music(*, quick: bool) -> tuple[Any, Any]:
    state = prepare(PRESETS["music-one"], quick=quick).state
    return state.model, state.filter


def _observations(name: str, model: Any, count: int) -> np.ndarray:
    numbers = np.random.default_rng(0).normal(size=(count, model.lstm.in_size))
    return (numbers if name == "sensors" else numbers > 1.6).astype(np.float32)


def _pushes(name: str, model: Any, filter: Any, xs: np.ndarray, *, num_pushes: int) -> Row:
    begin = time.perf_counter()
    stream = vf.Stream(filter, model, KEY)
    first = time.perf_counter() - begin
    taken = []
    for x in itertools.islice(itertools.cycle(xs), num_pushes + num_pushes // 10):
        begin = time.perf_counter()
        stream.push(x).bound.block_until_ready()
        taken.append(1e6 * (time.perf_counter() - begin))
    middle, late = np.percentile(taken[num_pushes // 10 :], [50, 99]).tolist()
    return {
        "kind": "push", "subject": name, "p50_us": middle, "p99_us": late,
        "pushes": num_pushes, "compile_s": first,
    }  # fmt: skip


def _together(
    name: str, model: Any, filter: Any, xs: np.ndarray, count: int, *, quick: bool
) -> Row:
    """Each call sends one new observation of every stream, and waits for all the bounds."""
    first = jax.vmap(lambda _: start(filter, model))(jnp.arange(count))

    def steps(beliefs: Any, index: jax.Array, xs: jax.Array, modules: Any) -> Any:
        keys = jax.vmap(lambda number: jax.random.fold_in(KEY, number))(jnp.arange(count))
        beliefs, filtered = jax.vmap(functools.partial(step, *modules))(beliefs, xs, keys)
        return beliefs, filtered.bound

    batches = [np.resize(np.roll(xs, shift, 0), (count, xs.shape[1])) for shift in range(8)]
    chain = Chain(steps, first, jnp.asarray(batches[0]), (filter, model))
    endless, parameters = itertools.cycle(batches), chain.arguments[2]

    def push_all() -> Any:
        return chain.launch([jnp.asarray(next(endless))], parameters)[0].block_until_ready()

    spread = paced(push_all, lambda bound: bound, seconds=0.2 if quick else 1.5)
    return {
        "kind": "streams", "subject": name, "streams": count, "us": spread.times(1e6),
        "per_second": count / spread.median, "compile_s": chain.compile_seconds,
    }  # fmt: skip
