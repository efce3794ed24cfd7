"""Pages in a real browser: how wide they are, what they say in the console, what they look like."""

import html
import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

# In this order; `chromium` is Debian's.
NAMES = ("chromium", "chromium-browser", "google-chrome")
PROBE = """<script>
const wrong = [];
addEventListener("error", e => wrong.push(String(e.message || (e.target || {}).src)), true);
addEventListener("load", () => {
  const root = document.documentElement;
  const blank = [...document.images].filter(i => !i.complete || !i.naturalWidth).length;
  const asked = performance.getEntriesByType("resource").map(r => r.name)
    .filter(n => !n.startsWith("data:"));
  root.dataset.probe = JSON.stringify({inner: innerWidth, scroll: root.scrollWidth,
    blank, images: document.images.length, wrong, asked, height: root.scrollHeight});
});
</script>"""


def browser():
    """The path of a browser; the test is skipped without one, unless one is required."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("VARFILTER_REQUIRE_BROWSER"):
            pytest.fail("VARFILTER_REQUIRE_BROWSER is set, and there is no chromium")
        pytest.skip("needs chromium")
    return found


def look_at(page: Path, width: int, folder: Path):
    """(what the page says of itself, what the browser said of it, its picture as an array)."""
    import json

    from PIL import Image

    text = page.read_text(encoding="utf-8")
    probed = folder / f"probed-{width}.html"
    probed.write_text(text.replace("<head>", "<head>" + PROBE, 1), encoding="utf-8")
    picture = folder / f"{page.stem}-{width}.png"
    dom, said = _headless("--dump-dom", width, 900, probed)
    (probe,) = re.findall(r'data-probe="([^"]*)"', dom)
    measured = json.loads(html.unescape(probe))
    _headless(f"--screenshot={picture}", width, min(measured["height"], 8000), page)
    with Image.open(io.BytesIO(picture.read_bytes())) as image:
        pixels = np.asarray(image.convert("L"))
    return measured, said, pixels


def _headless(what: str, width: int, height: int, page: Path) -> tuple[str, str]:
    command = [
        browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--enable-logging=stderr", "--log-level=0", f"--window-size={width},{height}",
        what, page.resolve().as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(said)
