"""One training update of each of the paper's models at its full size: does it fit, and how long?

    python benchmarks/models.py [--quick] [--json FILE] [--batch N] [PRESET ...]

For each preset it prints the parameters of the model and of AVF's network, the peak memory of a
process that makes one update under AVF and one under the baseline, and the time of an update
after the first. Each preset is measured in a process of its own. The data are random: neither
time nor memory depends on them. `--quick` shrinks every network, to see that it works.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.table import Table

import varfilter as vf
from varfilter.experiments import AVF, published_model
from varfilter.inference import SRNNPosterior, SVGPosterior, VRNNPosterior
from varfilter.models import VaryingNormalHead
from varfilter.nn import VGG

KEY = jax.random.key(0)
# The paper's lengths; the batches are those of the paper, but for the video's, cut to fit.
PRESETS = {
    "vrnn-timit": {"batch": 64, "steps": 39},
    "srnn-timit": {"batch": 64, "steps": 39},
    "srnn-music": {"batch": 16, "steps": 24},
    "svg-kth": {"batch": 2, "steps": 20},
}
COLUMNS = [
    ("preset", "preset", "{}"),
    ("batch", "batch", "{}"),
    ("steps", "steps", "{}"),
    ("model, M", "model_parameters", "{:.2f}"),
    ("AVF, M", "avf_parameters", "{:.2f}"),
    ("base, M", "baseline_parameters", "{:.2f}"),
    ("AVF, s", "avf_seconds", "{:.2f}"),
    ("base, s", "baseline_seconds", "{:.2f}"),
    ("GiB", "peak_gib", "{:.2f}"),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=f"of {', '.join(PRESETS)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--batch", type=int, help="sequences in a batch, instead of the default")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.presets) - set(PRESETS):
        parser.error(f"unknown PRESET {', '.join(sorted(unknown))}; choose of {', '.join(PRESETS)}")
    if arguments.one:
        (preset,) = arguments.presets
        print(json.dumps(measure(preset, arguments.batch, quick=arguments.quick)))
        return

    console = Console()
    rows = []
    for preset in arguments.presets or PRESETS:
        options = [preset, "--one", *(["--quick"] if arguments.quick else [])]
        options += ["--batch", str(arguments.batch)] if arguments.batch else []
        with console.status(f"measuring {preset} ..."):
            done = subprocess.run(
                [sys.executable, __file__, *options], capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            sys.exit(f"{preset} failed:\n{done.stderr}")
        rows.append(json.loads(done.stdout))
    table = Table(title="One training update at full size", title_justify="left")
    for title, _, _ in COLUMNS:
        is_name = title == "preset"
        table.add_column(title, justify="left" if is_name else "right", no_wrap=is_name)
    for row in rows:
        cells = {k: v / 1e6 if k.endswith("_parameters") else v for k, v in row.items()}
        table.add_row(*(shape.format(cells[name]) for _, name, shape in COLUMNS))
    console.print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
        console.print(f"Wrote {arguments.json}.")


def measure(preset: str, batch: int | None, *, quick: bool) -> dict[str, Any]:
    """Two updates each way; the second is timed."""
    model, avf, baseline = small(preset) if quick else full(preset)
    num_sequences = batch or (2 if quick else PRESETS[preset]["batch"])
    num_steps = 3 if quick else PRESETS[preset]["steps"]
    shape = model.emission(model.init(None), model.prior(model.init(None)).mean).shape
    xs = jax.random.uniform(KEY, (num_sequences, num_steps + 1, *shape))
    xs = jnp.round(xs) if preset == "srnn-music" else xs

    adam = optax.adam(1e-4)
    contestants = {
        "avf": (vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=1, complete=True), avf),
        "baseline": (vf.EndToEnd(theta=adam, phi=adam, complete=True), baseline),
    }
    row: dict[str, Any] = {"preset": preset, "batch": num_sequences, "steps": num_steps}
    row["model_parameters"] = count(model)
    for name, (learner, inference) in contestants.items():
        row[f"{name}_parameters"] = count(inference)
        state = learner.init(model, vf.VariationalFilter(inference))
        seconds = 0.0
        for _ in range(2):
            begin = time.perf_counter()
            state, metrics = learner.update(state, xs[:, 1:], KEY, x0=xs[:, 0])
            free_energy = float(metrics.free_energy)
            seconds = time.perf_counter() - begin
        row[f"{name}_seconds"] = seconds
        row[f"{name}_free_energy"] = free_energy
        if int(state.num_skipped):
            sys.exit(f"{preset}: {int(state.num_skipped)} updates had no finite gradient")
    row["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return row


def full(preset: str) -> tuple[vf.AbstractModel, vf.AbstractInference, vf.AbstractInference]:
    """(model, AVF, baseline) at the sizes of the paper."""
    model = published_model(preset, KEY)
    avf = AVF(num_layers=1 if preset == "svg-kth" else 2).build(model, KEY)
    match preset:
        case "vrnn-timit":
            return model, avf, vf.Amortized(VRNNPosterior(model, key=KEY))
        case "srnn-timit":
            network = SRNNPosterior(model, hidden_size=512, num_layers=2, key=KEY)
            return model, avf, vf.Amortized(network)
        case "srnn-music":
            return model, avf, vf.Amortized(SRNNPosterior(model, key=KEY))
    return model, avf, vf.Recurrent(SVGPosterior(model, key=KEY))


def small(preset: str) -> tuple[vf.AbstractModel, vf.AbstractInference, vf.AbstractInference]:
    """The same kinds of parts, as small as they go."""
    if preset == "vrnn-timit":
        model = vf.VRNN(
            4, 2, recurrent_size=4, data_feature_size=4, latent_feature_size=4, prior_size=4,
            decoder_size=4, num_layers=1, head=VaryingNormalHead, key=KEY,
        )  # fmt: skip
        baseline = vf.Amortized(VRNNPosterior(model, hidden_size=4, num_layers=1, key=KEY))
    elif preset == "svg-kth":
        model = vf.SVG(1, 2, coder=VGG(widths=((4, 4),)), code_size=4, recurrent_size=4, key=KEY)
        baseline = vf.Recurrent(SVGPosterior(model, hidden_size=4, key=KEY))
    else:
        model = vf.SRNN(4, 2, recurrent_size=4, prior_size=4, decoder_size=4, key=KEY)
        baseline = vf.Amortized(SRNNPosterior(model, hidden_size=4, key=KEY))
    return model, vf.Iterative(model, hidden_size=4, num_layers=1, key=KEY), baseline


def count(module: Any) -> int:
    """The number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array)))


if __name__ == "__main__":
    main()
