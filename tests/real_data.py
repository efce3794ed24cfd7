"""Where the real data sets lie; the tests that need them are skipped where they are absent."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data sets in {DATA}")
