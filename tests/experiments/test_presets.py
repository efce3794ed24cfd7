"""Presets are small where they say so, fit every model, and go where nobody asked for the paper."""

import re
from dataclasses import replace

import equinox as eqx
import jax
import pytest

from varfilter.experiments import EXPERIMENTS, costs, experiment_named, own_experiment
from varfilter.experiments.costs import (
    CPU_SECONDS,
    PARAMETERS,
    PRODUCT_SECONDS,
    VALIDATION,
    Parameters,
    duration,
    expected,
    num_parameters,
    work_of,
)
from varfilter.experiments.models import PIXELS, Observations
from varfilter.experiments.presets import MOST_UPDATES, suitable_preset, with_preset
from varfilter.media.music import MusicSource
from varfilter.media.sound import SoundSource
from varfilter.media.table import TableSource
from varfilter.media.video import VideoSource

# One of each model and method; the others differ in their data alone.
NAMES = [
    f"{model}-{method}"
    for model in ("vrnn-timit", "srnn-timit", "srnn-jsb", "svg-kth")
    for method in ("avf", "baseline")
]


@pytest.mark.parametrize("name", NAMES)
def test_small_is_small(name):
    paper = experiment_named(name)
    small = with_preset(paper, "small")
    assert (small.data, small.seed, small.name) == (paper.data, paper.seed, paper.name)
    assert type(small.filter.inference) is type(paper.filter.inference)
    assert small.published is None
    assert small.schedule.patience_epochs is not None
    # As many updates, whatever the amount of the data.
    schedule = small.schedule
    assert schedule.updates_per_epoch(1) == schedule.updates_per_epoch(10_000) == 20
    counted = num_parameters(small)
    assert counted.total < min(2e6, num_parameters(paper).total / 5)
    kept = name.replace("-jsb-", "-music-") + "-small"
    assert PARAMETERS[kept] == counted
    # At the pace that was measured, in seconds of cores, four minutes of updates and a little; the
    # baseline of SVG was not timed.
    num_updates = schedule.num_epochs * schedule.updates_per_epoch(1)
    assert CPU_SECONDS.get(kept, 0.0) * num_updates <= 250


def test_a_preset_is_chosen_once():
    paper = experiment_named("srnn-jsb-avf")
    assert with_preset(paper, "paper") is paper
    small = with_preset(paper, "small")
    assert with_preset(small, "small") is small
    with pytest.raises(ValueError, match="`preset` is 'paper', but 'srnn-jsb-avf' has that of sma"):
        with_preset(small, "paper")
    with pytest.raises(ValueError, match="`preset` must be one of small, paper; got 'big'"):
        with_preset(paper, "big")
    with pytest.raises(ValueError, match="the paper has no tables"):
        with_preset(EXPERIMENTS["table"], "paper")


@pytest.mark.parametrize("source", [MusicSource, SoundSource, VideoSource, TableSource])
def test_ones_own_data_are_small_and_stop_by_themselves(source):
    own = own_experiment(source("somewhere"))
    assert own.preset == "small"
    assert own.schedule.patience_epochs is not None
    assert own.published is None
    if source is not TableSource:
        paper = own_experiment(source("somewhere"), "paper")
        names = {
            MusicSource: "srnn-jsb-avf",
            SoundSource: "vrnn-timit-sample-avf",
            VideoSource: "svg-weizmann-avf",
        }
        published = EXPERIMENTS[names[source]].model
        if source is SoundSource:  # of which each sample goes on from those before it
            assert own.model.order == 16
            published = replace(published, order=16)
        assert paper.model == published
        assert paper.schedule.patience_epochs == paper.schedule.num_epochs // 5
    # The paper's protocol does not, nor has its model such a filter.
    assert not any(getattr(e.model, "order", 0) for e in EXPERIMENTS.values())
    assert all(e.schedule.patience_epochs is None for e in EXPERIMENTS.values() if e.published)


def test_the_paper_on_an_accelerator_where_that_is_soon_done():
    music = experiment_named("srnn-jsb-avf")
    assert suitable_preset(music, "cpu", 3) == "small"
    assert suitable_preset(music, "gpu", 3) == "paper"
    most = MOST_UPDATES // music.schedule.num_epochs * music.schedule.batch_size
    assert suitable_preset(music, "gpu", most) == "paper"
    assert suitable_preset(music, "gpu", most + 1) == "small"
    assert suitable_preset(EXPERIMENTS["table"], "gpu", 1) == "small"


def test_what_was_measured_is_expected():
    experiment = experiment_named("srnn-jsb-avf")
    parameters = PARAMETERS["srnn-music-avf"]
    found = expected(experiment, parameters, 25, 1000, platform="cpu")
    assert found.update_seconds == pytest.approx(CPU_SECONDS["srnn-music-avf"])
    assert found.seconds == pytest.approx(1000 * (1 + VALIDATION) * found.update_seconds)
    slow = expected(experiment, parameters, 25, 1000, platform="cpu", slowness=3.0)
    assert slow.seconds == pytest.approx(3 * found.seconds)
    # Twice the batch is twice the work; a little more than half of it, half as many steps.
    schedule = replace(experiment.schedule, batch_size=32)
    double = expected(replace(experiment, schedule=schedule), parameters, 25, 1, platform="cpu")
    assert double.update_seconds == pytest.approx(2 * found.update_seconds)
    # Runs were made on one kind of accelerator, at these settings: nothing is known of others.
    assert expected(experiment, parameters, 25, 1, platform="gpu").update_seconds < 0.1
    svg = experiment_named("svg-kth-avf")
    there = expected(svg, PARAMETERS["svg-kth-avf"], 21, 1, platform="gpu")
    assert there.update_seconds is there.seconds is None


def test_a_busy_machine_does_not_change_the_guess(monkeypatch):
    class Clocks:
        """Cores that take three times as long as others, of which this process has a tenth."""

        now = 0.0

        def process_time(self):
            return self.now

        def perf_counter(self):
            return 10.0 * self.now

    clocks = Clocks()

    def product(one, other):
        clocks.now += 3.0 * PRODUCT_SECONDS
        return one

    monkeypatch.setattr(costs, "time", clocks)
    monkeypatch.setattr(costs.jax, "jit", lambda _: product)
    assert costs.slowness() == pytest.approx(3.0)


def test_a_guess_has_one_digit():
    seconds = (1e-5, 0.043, 0.047, 0.96, 2.6, 11.0, 44.0, 119.0, 170.0, 5000.0, 9e4, 4e6)
    assert [costs.rough_duration(x) for x in seconds] == [
        "1 ms", "40 ms", "50 ms", "1 s", "3 s", "10 s", "40 s", "100 s", "3 min", "80 min",
        "20 h", "50 d",
    ]  # fmt: skip


def test_memory_grows_with_the_work():
    svg = experiment_named("svg-kth-avf")
    found = expected(svg, PARAMETERS["svg-kth-avf"], 21, 1, platform="cpu")
    assert found.gib == pytest.approx(50)
    half = replace(svg, schedule=replace(svg.schedule, batch_size=10))
    less = expected(half, PARAMETERS["svg-kth-avf"], 21, 1, platform="cpu")
    assert 24 < less.gib < 27


def test_work_counts_draws_iterations_and_particles():
    experiment = experiment_named("vrnn-timit-baseline")
    parameters = Parameters(100, 10)
    base = work_of(experiment, parameters, 41)
    assert base == 64 * 40 * 3 * 110
    fivo = replace(experiment, filter=replace(experiment.filter, bound="fivo", num_particles=4))
    assert work_of(fivo, parameters, 41) == 4 * base


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0004, "1 ms"), (0.25, "250 ms"), (2.53, "2.5 s"), (100.0, "100 s"), (150.0, "2 min"),
     (7199.0, "120 min"), (8000.0, "2 h"), (2e5, "2 d")],
)  # fmt: skip
def test_lengths_of_time(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize("preset", ["small", "paper"])
@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_the_stages_of_a_video_model_follow_the_size_of_the_frames(size, preset):
    usual = own_experiment(VideoSource("somewhere"), preset).model
    experiment = own_experiment(VideoSource("somewhere", size=size), preset)
    model = experiment.model
    # Each stage halves the maps, and the code is made of maps of 4x4 pixels.
    assert size / 2 ** len(model.channels) == 4
    assert len(model.convolutions) == len(model.channels)
    shared = min(len(model.channels), len(usual.channels))
    assert model.channels[:shared] == usual.channels[:shared]
    assert replace(model, channels=usual.channels, convolutions=usual.convolutions) == usual
    frames = Observations("clips", (1, size, size), PIXELS)
    built = eqx.filter_eval_shape(model.build, frames, jax.random.key(0))
    assert built.image_shape == (1, size, size)


@pytest.mark.parametrize(
    ("size", "advice"),
    [
        (32, "Give `--data.size 64`, or `--model.channels 8 16 32 --model.convolutions 1 1 1`."),
        (48, "A stage doubles 4 pixels a side: give `--data.size 32` or `--data.size 64`."),
        (2, "A stage doubles 4 pixels a side: give `--data.size 8`."),
    ],
)
def test_frames_that_do_not_fit_are_told_what_does(size, advice):
    model = own_experiment(VideoSource("somewhere")).model
    with pytest.raises(ValueError, match=re.escape(advice)):
        model.build(Observations("clips", (1, size, size), PIXELS), jax.random.key(0))
    # What is advised is taken.
    if size == 32:
        other = replace(model, channels=(8, 16, 32), convolutions=(1, 1, 1))
        assert other == own_experiment(VideoSource("somewhere", size=size)).model
