"""The demo's page: one HTML file with its pictures inside."""

import base64
import html

from varfilter.demo import pictures
from varfilter.demo.pendulum import FAULT, FAULT_STEPS, PendulumResult
from varfilter.demo.tracker import TrackerResult
from varfilter.demo.training import Score

CSS = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1c1c1c; background: #fff;
       max-width: 60rem; margin: 0 auto; padding: 1.5rem 1.2rem 4rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { margin-top: 2.6rem; }
.lead { color: #555; margin-top: 0; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.4rem 0; }
.card { flex: 1 1 13rem; border: 1px solid #ddd; border-radius: .5rem; padding: .7rem 1rem; }
.card b { display: block; font-size: 1.45rem; color: #1f5fbf; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .7rem; border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child { text-align: left; }
tr.ours td { background: #eef4fc; font-weight: 600; }
img { max-width: 100%; height: auto; display: block; margin: .6rem 0; }
figcaption, .note { color: #555; font-size: .92rem; } figure { margin: 1rem 0; }
code { background: #f3f3f3; padding: .1rem .3rem; border-radius: .2rem; }
"""


def render(tracker: TrackerResult, pendulum: PendulumResult, *, seed: int, seconds: float) -> str:
    """The whole page."""
    watched = pendulum.watched
    found = "found" if watched.is_fault_found else "not found"
    avf, amortized = pendulum.scores["avf"], pendulum.scores["amortized"]
    cards = [
        (f"{100 * tracker.gap:+.1f}%", "AVF above the exact optimum, tracker (nats per step)"),
        (f"{avf.free_energy:.1f}", f"nats per frame with AVF, pendulum (baseline "
         f"{amortized.free_energy:.1f}; lower is better)"),
        (found, f"the fault at steps {FAULT} to {FAULT + FAULT_STEPS - 1}, by its surprise"),
    ]  # fmt: skip
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>varfilter demo</title><style>{CSS}</style></head><body>
<h1>varfilter demo</h1>
<p class="lead">Two simulated worlds, learned and filtered on this machine in {seconds:.0f} s
(seed {seed}). Free energy is an upper bound on &minus;log p(data), in nats; lower is better.</p>
<div class="cards">{"".join(_card(value, text) for value, text in cards)}</div>

<h2>1. A tracker, where the best answer is known</h2>
<p>A particle on a spring, seen through noise. The model is the true one; only the inference is
learned, so every method can be held against the exact optimum of what it does: sample
z<sub>t&minus;1</sub>, then find q(z<sub>t</sub>). Held-out sequences.</p>
{_tracker_table(tracker)}
<p class="note">The Kalman filter carries a distribution instead of a sample, which is why it lies
below every sampled recursion. The amortized baseline is trained through time and AVF step by
step, for the same number of updates on the same sequences.</p>

<h2>2. A pendulum in noisy images with missing pixels</h2>
<p>16&times;16 pixels, one in five of them missing in every frame, none of the physics known: an
SRNN (a stochastic recurrent network) and its inference are learned from the images alone.
Held-out films.</p>
{_pendulum_table(pendulum)}

<h2>Training</h2>
{
        _figure(
            pictures.training_curves(tracker, pendulum),
            "Free energy of the training batches (running median of 15).",
        )
    }

<h2>What inference does</h2>
{
        _figure(
            pictures.iterations(tracker, pendulum),
            "Free energy after each inference iteration, from the prior on, held-out data. AVF has"
            " learned to take in two steps what gradient descent needs many for.",
        )
    }

<h2>Filtering and forecasting a held-out film</h2>
{
        _figure(
            pictures.frames(watched),
            "Grey-blue pixels are missing. The prediction is made before the frame is seen. The"
            " forecast is made once, in the middle, and looks ten steps ahead: its mean blurs as"
            " the future becomes uncertain, a single possible future does not.",
        )
    }

<h2>A fault shows as surprise</h2>
{
        _figure(
            pictures.surprise(watched),
            f"For two frames (t={FAULT}, {FAULT + FAULT_STEPS - 1}) the bob is shown elsewhere."
            f" Flagged steps: {', '.join(map(str, watched.alarms)) or 'none'}. The alarm level was"
            " set on undisturbed films; the first steps of a film are not judged.",
        )
    }
</body></html>
"""


def _tracker_table(result: TrackerResult) -> str:
    optimum = result.scores["exact"].free_energy
    rows = [
        _row(short, [
            score.name,
            f"{score.free_energy:.3f}",
            f"{100 * (score.free_energy / optimum - 1):+.1f}%",
            f"{score.prediction_error:.3f}",
            _seconds(score),
        ])
        for short, score in result.scores.items()
    ]  # fmt: skip
    head = ["method", "free energy, nats per step", "above the exact optimum",
            "prediction error (RMS)", "training"]  # fmt: skip
    return _table(head, rows)


def _pendulum_table(result: PendulumResult) -> str:
    rows = [
        _row(short, [
            score.name,
            f"{score.free_energy:.2f}",
            f"{score.free_energies[0]:.2f}" if len(score.free_energies) > 1 else "",
            f"{score.prediction_error:.4f}",
            _seconds(score),
        ])
        for short, score in result.scores.items()
    ]  # fmt: skip
    head = ["method", "free energy, nats per frame", "at the prior, before inference",
            "prediction error to the clean image (RMS)", "training"]  # fmt: skip
    return _table(head, rows)


def _seconds(score: Score) -> str:
    return "" if score.train_seconds is None else f"{score.train_seconds:.0f} s"


def _table(head: list[str], rows: list[str]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    return f'<div class="scroll"><table><tr>{cells}</tr>{"".join(rows)}</table></div>'


def _row(short: str, cells: list[str]) -> str:
    kind = ' class="ours"' if short == "avf" else ""
    return f"<tr{kind}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _card(value: str, text: str) -> str:
    return f'<div class="card"><b>{html.escape(value)}</b>{html.escape(text)}</div>'


def _figure(png: bytes, caption: str) -> str:
    data = base64.b64encode(png).decode()
    text = html.escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )
