"""Whether a change of the code leaves training as it was: the bits of tiny runs of each medium.

    python benchmarks/same_bits.py                         # digests of this checkout
    python benchmarks/same_bits.py --src ../before/src     # and of another, to be compared

Twenty updates of each, through the command line; the digest is of all arrays of the checkpoints
(parameters, optimizers), whatever they are called. Bits depend on the machine and on jax: compare
two revisions on one machine. It takes some minutes for each; the data sets must be at hand.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors import safe_open

ROOT = Path(__file__).parent.parent
SENSORS = str(ROOT / "examples" / "data" / "sensors.csv")
NETWORK = "--filter.inference.hidden-size 16"
SRNN = (
    "--model.latent-size 8 --model.recurrent-size 16 --model.prior-size 16 --model.decoder-size 16"
)
VRNN = (
    f"{SRNN} --model.data-feature-size 16 --model.latent-feature-size 16 --model.num-layers 1"
    " --schedule.batch-size 8"
)
SVG = (
    "--data.size 16 --model.channels 4 8 --model.convolutions 1 1 --model.latent-size 4"
    " --model.code-size 8 --model.recurrent-size 8 --schedule.batch-size 4 --schedule.num-steps 5"
)
DRAWS = "--filter.inference.num-samples 2"
RUNS = {
    "table": (SENSORS, ""),
    "table-baseline": (SENSORS, f"--method baseline {NETWORK}"),
    "music": ("srnn-jsb-avf", f"{SRNN} {NETWORK} {DRAWS}"),
    "music-baseline": ("srnn-jsb-baseline", f"{SRNN} {NETWORK}"),
    "music-residual": ("srnn-jsb-baseline", f"{SRNN} {NETWORK} --filter.inference.residual"),
    "music-descent": (
        "srnn-jsb-avf",
        f"{SRNN} --method descent --filter.inference.num-iterations 3",
    ),
    "music-fivo": (
        "srnn-jsb-avf",
        f"{SRNN} {NETWORK} {DRAWS} --filter.bound fivo --filter.num-particles 3",
    ),
    "sound": ("vrnn-timit-sample-avf", f"{VRNN} {NETWORK} --optimizer.num-phi-steps 3"),
    "sound-baseline": ("vrnn-timit-sample-baseline", f"{VRNN} {NETWORK}"),
    "video": ("svg-weizmann-avf", f"{SVG} {NETWORK} --optimizer.num-phi-steps 2"),
    "video-baseline": ("svg-weizmann-baseline", f"{SVG} {NETWORK}"),
}


def digest(folder):
    """The hash of the arrays of a run's newest checkpoint, in no order and without names."""
    newest = max((folder / "checkpoints").glob("*.safetensors"))
    with safe_open(newest, framework="numpy") as file:
        arrays = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
    hashes = sorted(
        hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()
        for array in arrays
    )
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16], len(arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="the sources to run")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)} (all)")
    given = parser.parse_args()
    environment = os.environ | {"PYTHONPATH": str(given.src.resolve())}
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.runs or RUNS:
            what, options = RUNS[name]
            words = ["train", what, *options.split(), "--max-updates", "20", "--quiet"]
            folder = Path(scratch) / name
            command = [sys.executable, "-m", "varfilter", *words, "--out", str(folder)]
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            found, count = digest(folder)
            print(f"{name:<16} {found}  {count} arrays", flush=True)


if __name__ == "__main__":
    main()
