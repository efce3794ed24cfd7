"""The demo's page: one HTML file with its pictures inside."""

from varfilter.demo import pictures
from varfilter.demo.pendulum import FAULT, FAULT_STEPS, PendulumResult
from varfilter.demo.tracker import TrackerResult
from varfilter.demo.training import Score
from varfilter.plots.page import cards, document, figure, table


def render(tracker: TrackerResult, pendulum: PendulumResult, *, seed: int, seconds: float) -> str:
    """The whole page."""
    watched = pendulum.watched
    found = "found" if watched.is_fault_found else "not found"
    avf, amortized = pendulum.scores["avf"], pendulum.scores["amortized"]
    shown = [
        (f"{100 * tracker.gap:+.1f}%", "AVF above the exact optimum, tracker (nats per step)"),
        (f"{avf.free_energy:.1f}", f"nats per frame with AVF, pendulum (baseline "
         f"{amortized.free_energy:.1f}; lower is better)"),
        (found, f"the fault at steps {FAULT} to {FAULT + FAULT_STEPS - 1}, by its surprise"),
    ]  # fmt: skip
    body = f"""<h1>varfilter demo</h1>
<p class="lead">Two simulated worlds, learned and filtered on this machine in {seconds:.0f} s
(seed {seed}). Free energy is an upper bound on &minus;log p(data), in nats; lower is better.</p>
{cards(shown)}

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
        figure(
            pictures.training_curves(tracker, pendulum),
            "Free energy of the training batches (running median of 15).",
        )
    }

<h2>What inference does</h2>
{
        figure(
            pictures.iterations(tracker, pendulum),
            "Free energy after each inference iteration, from the prior on, held-out data. AVF has"
            " learned to take in two steps what gradient descent needs many for.",
        )
    }

<h2>Filtering and forecasting a held-out film</h2>
{
        figure(
            pictures.frames(watched),
            "Grey-blue pixels are missing. The prediction is made before the frame is seen. The"
            " forecast is made once, in the middle, and looks ten steps ahead: its mean blurs as"
            " the future becomes uncertain, a single possible future does not.",
        )
    }

<h2>A fault shows as surprise</h2>
{
        figure(
            pictures.surprise(watched),
            f"For two frames (t={FAULT}, {FAULT + FAULT_STEPS - 1}) the bob is shown elsewhere."
            f" Flagged steps: {', '.join(map(str, watched.alarms)) or 'none'}. The alarm level was"
            " set on undisturbed films; the first steps of a film are not judged.",
        )
    }
"""
    return document("varfilter demo", body)


def _tracker_table(result: TrackerResult) -> str:
    optimum = result.scores["exact"].free_energy
    rows = [
        [
            score.name,
            f"{score.free_energy:.3f}",
            f"{100 * (score.free_energy / optimum - 1):+.1f}%",
            f"{score.prediction_error:.3f}",
            _seconds(score),
        ]
        for score in result.scores.values()
    ]  # fmt: skip
    head = ["method", "free energy, nats per step", "above the exact optimum",
            "prediction error (RMS)", "training"]  # fmt: skip
    return table(head, rows, ours=[list(result.scores).index("avf")])


def _pendulum_table(result: PendulumResult) -> str:
    rows = [
        [
            score.name,
            f"{score.free_energy:.2f}",
            f"{score.free_energies[0]:.2f}" if len(score.free_energies) > 1 else "",
            f"{score.prediction_error:.4f}",
            _seconds(score),
        ]
        for score in result.scores.values()
    ]  # fmt: skip
    head = ["method", "free energy, nats per frame", "at the prior, before inference",
            "prediction error to the clean image (RMS)", "training"]  # fmt: skip
    return table(head, rows, ours=[list(result.scores).index("avf")])


def _seconds(score: Score) -> str:
    return "" if score.train_seconds is None else f"{score.train_seconds:.0f} s"
