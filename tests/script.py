"""Runs a Python file as its reader would, with warnings of our own code as errors.

    python tests/script.py FILE WORDS...

What others announce for their next releases (deprecations) stays a warning, and so does all that
is said in other people's modules: Python's own `-W` cannot tell whose module it is.
"""

import os
import runpy
import sys
import warnings

OURS = r"(varfilter|__main__)(\.|$)"
ANNOUNCED = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)

if __name__ == "__main__":
    warnings.filterwarnings("error", module=OURS)
    for category in ANNOUNCED:
        warnings.filterwarnings("default", category=category)
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])  # as for a script that is started itself
    runpy.run_path(sys.argv[0], run_name="__main__")
