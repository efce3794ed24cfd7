"""One filter step of each inference: its time, and the time to compile it."""

from typing import Any

import subjects
from measure import Race, compiled

import varfilter as vf
from varfilter.inference import (
    Exact,
    Gradients,
    LSTMPosterior,
    MLPPosterior,
    PrecisionWeightedErrors,
)

TITLES = {
    "small": "1a. One filter step, LinearGaussian 4 x 2",
    "music": "1b. One filter step, SRNN at the music sizes",
}
COLUMNS = {
    name: [
        ("filter", "filter", "{}"),
        ("us a step", "step_us", "{:.1f}"),
        ("times Prior", "times_prior", "{:.2f}"),
        ("s to compile", "compile_s", "{:.2f}"),
    ]
    for name in TITLES
}


def measure(*, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Rows for the small model and for SRNN."""
    small, music = subjects.small(), subjects.music(quick=quick)
    rolls = subjects.piano_rolls(music, 1, 8 if quick else 24)[0]
    on_small = filters(small, 32, quick=quick) | {
        "Exact": vf.VariationalFilter(Exact()),
        "KalmanFilter": vf.KalmanFilter(),
    }
    on_music = filters(music, 8 if quick else 1024, quick=quick)
    if quick:  # compiling is what takes long, and the small model has shown all of them
        on_music = {name: on_music[name] for name in ("Prior", "Iterative K=1, gradients")}
    return {
        "small": _race(small, on_small, subjects.observations(64), quick=quick),
        "music": _race(music, on_music, rolls, quick=quick),
    }


def filters(
    model: vf.AbstractModel, hidden_size: int, *, quick: bool
) -> dict[str, vf.AbstractFilter]:
    """Every way to filter that fits any model."""
    key = subjects.KEY
    inferences: dict[str, vf.AbstractInference] = {
        "Prior": vf.Prior(),
        "Amortized": vf.Amortized(MLPPosterior(model, hidden_size=hidden_size, key=key)),
        "Recurrent": vf.Recurrent(LSTMPosterior(model, hidden_size=hidden_size, key=key)),
    }
    signals = {"gradients": Gradients(), "errors": PrecisionWeightedErrors()}
    for told, signal in signals.items():
        for count in (1,) if quick else (1, 2, 5):
            inferences[f"Iterative K={count}, {told}"] = vf.Iterative(
                model, signal=signal, hidden_size=hidden_size, num_iterations=count, key=key
            )
    inferences["GradientDescent K=20"] = vf.GradientDescent(num_iterations=20)
    bootstrap = {"ParticleFilter(Prior, 100)": vf.ParticleFilter(vf.Prior(), 100)}
    return {name: vf.VariationalFilter(each) for name, each in inferences.items()} | bootstrap


def _race(
    model: vf.AbstractModel, filters: dict[str, vf.AbstractFilter], xs: Any, *, quick: bool
) -> list[dict[str, Any]]:
    made = {name: compiled(vf.run, each, model, xs, subjects.KEY) for name, each in filters.items()}
    race = Race({name: call for name, (call, _) in made.items()}, num_rounds=3 if quick else 21)
    return [
        {
            "filter": name,
            "step_us": 1e6 * race.seconds(name) / len(xs),
            "times_prior": race.ratio(name, "Prior"),
            "compile_s": seconds,
        }
        for name, (_, seconds) in made.items()
    ]
