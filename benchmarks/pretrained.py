"""Make a trained run a model that comes with varfilter, and say what half precision costs.

`python benchmarks/pretrained.py RUN NAME`

RUN is the folder of a run whose data are at hand; NAME becomes a folder in
`src/varfilter/pretrained`, by which every command that takes a run knows it. Both are scored on the
test part. A run that `study.py --weights` packed is unpacked by `cat best.tar.part-* | tar x`.
"""

import argparse
import json
from pathlib import Path

from varfilter.runs import Run, pack_run, score_run
from varfilter.runs.pretrained import FOLDER

# What the wheel has room for.
MOST_MIB = 10.0


def main() -> None:
    """Pack a run, and score it before and after."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder to make it in")
    parser.add_argument("--split", default="test", choices=("train", "valid", "test"))
    given = parser.parse_args()
    run = Run.load(given.run)
    packed = pack_run(run, given.to / given.name)
    size = sum(path.stat().st_size for path in packed.folder.iterdir()) / 2**20
    nats = [score_run(each, split=given.split)["nats"] for each in (run, packed)]
    print(
        json.dumps(
            {
                "name": given.name,
                "mib": round(size, 2),
                "split": given.split,
                "nats": nats[0],
                "nats_in_half_precision": nats[1],
                "moved_by": nats[1] - nats[0],
            },
            indent=1,
        )
    )
    if size > MOST_MIB:
        raise SystemExit(f"{packed.folder} takes {size:.1f} MiB; the wheel has room for 10.")


if __name__ == "__main__":
    main()
