"""The demo's page in a browser, and its scores, without the minutes of training."""

import jax
import numpy as np
import pytest
from rich.progress import Progress

from browser import look_at
from varfilter.demo.page import render
from varfilter.demo.pendulum import FAULT, PendulumResult, Watched
from varfilter.demo.worlds import (
    Score,
    TrackerResult,
    Trained,
    pendulum_video,
    score,
    tracker,
)
from varfilter.filtering import run
from varfilter.filters import KalmanFilter
from varfilter.simulation import generate


@pytest.fixture(scope="module")
def results():
    """Made-up results of both worlds, with two frames of a fault."""
    rng = np.random.default_rng(0)

    def scored(*names):
        return {
            name: Score(name, 3.0 + i, (9.0, 4.0, 3.0 + i), 0.1, 12.0)
            for i, name in enumerate(names)
        }

    trained = {
        name: Trained(tracker(), KalmanFilter(), 3 + np.exp(-np.arange(80) / 9), 12.0, 0)
        for name in ("avf", "amortized")
    }
    frames = np.asarray(pendulum_video(1, 60, jax.random.key(0)).videos[0])
    surprise = rng.normal(-30, 3, 60)
    surprise[FAULT] = 20.0
    clean = np.nan_to_num(frames)
    ten = clean[:10]
    watched = Watched(frames, clean, clean, ten, ten, ten, surprise, -5.0)
    pendulum = scored("particles", "avf", "gradient", "amortized", "prior")
    return (
        TrackerResult(
            scored("kalman", "particles", "exact", "gradient", "avf", "amortized", "prior"), trained
        ),
        PendulumResult(pendulum, trained, watched),
    )


def test_a_browser_shows_the_page_whole_on_every_screen(results, tmp_path):
    page = tmp_path / "index.html"
    page.write_text(render(*results, seed=0, seconds=100.0), encoding="utf-8")
    folder = tmp_path / "browser"
    folder.mkdir()
    measured, said, pictures = look_at(page, (1280, 400), folder)
    assert said == ""
    for width, found in measured.items():
        assert found["scroll"] <= width, "the page scrolls sideways"
        assert (found["images"], found["blank"], found["wrong"], found["asked"]) == (4, 0, [], [])
        for begin in range(0, min(found["height"], 6000) - 700, 700):
            assert pictures[width][begin : begin + 700].std() > 5.0
    assert max(measured[400]["drawn"]) < min(measured[1280]["drawn"])


def test_the_fault_is_found_by_its_surprise(results):
    _, pendulum = results
    assert pendulum.watched.alarms == [FAULT]
    assert pendulum.watched.is_fault_found


def test_a_score_is_the_mean_over_the_steps_after_the_first():
    model = tracker()
    keys = jax.random.split(jax.random.key(0), 3)
    xs = np.stack([np.asarray(generate(model, 6, key)[0]) for key in keys])
    found = score("Kalman", model, KalmanFilter(), xs, keys[0], progress=Progress(disable=True))
    bounds = [run(KalmanFilter(), model, each[1:], keys[0])[1].bound for each in xs]
    # Programs of another shape round otherwise.
    assert found.free_energy == pytest.approx(-np.mean(bounds), rel=1e-5)
    assert found.free_energies == pytest.approx((found.free_energy,))
