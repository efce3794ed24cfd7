"""A process that trains as `varfilter` does, on a disk that ends it at a given moment.

`python crashing.py FOLDER '{"after_bytes": 1000}' train ...`: the second word has the arguments of
`CrashingDisk`, as JSON.
"""

import json
import sys

from disks import CrashingDisk
from varfilter.cli import main

if __name__ == "__main__":
    folder, options, *words = sys.argv[1:]
    with CrashingDisk(folder, **json.loads(options)).watched():
        main(words)
