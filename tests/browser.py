"""Pages in a real browser: how wide they are, what they say in the console, what they look like."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

# In this order; `chromium` is Debian's.
NAMES = ("chromium", "chromium-browser", "google-chrome")
HEIGHT = 6000
# The page measures itself, and tells the page round it.
PROBE = """<script>
const wrong = [];
addEventListener("error", e => wrong.push(String(e.message || (e.target || {}).src)), true);
addEventListener("load", () => {
  const root = document.documentElement, images = [...document.images];
  const asked = performance.getEntriesByType("resource").map(r => r.name)
    .filter(name => !name.startsWith("data:"));
  parent.postMessage({width: innerWidth, scroll: root.scrollWidth,
    height: Math.ceil(document.body.getBoundingClientRect().bottom),
    images: images.length, blank: images.filter(i => !i.naturalWidth).length,
    drawn: images.map(i => i.naturalWidth), wrong, asked}, "*");
});
</script>"""
# A window of its own would not be narrower than 500 pixels.
AROUND = """<!doctype html><html><head><meta charset="utf-8"><link rel="icon" href="data:,"><script>
const told = {};
addEventListener("message", e => { told[e.data.width] = e.data;
  document.documentElement.dataset.told = JSON.stringify(told); });
</script></head><body style="margin:0;display:flex;width:FULLpx">FRAMES</body></html>"""


def look_at(page: Path, widths: tuple[int, ...], folder: Path):
    """(what the page says of itself by width, the console, its picture by width) at once."""
    from PIL import Image

    probed, around, picture = (folder / name for name in ("page.html", "all.html", "all.png"))
    text = page.read_text(encoding="utf-8")
    probed.write_text(text.replace("<head>", "<head>" + PROBE, 1), encoding="utf-8")
    frames = "".join(
        f'<iframe src="page.html" style="border:0;flex:none;width:{width}px;height:{HEIGHT}px">'
        "</iframe>"
        for width in widths
    )
    around.write_text(AROUND.replace("FULL", str(sum(widths))).replace("FRAMES", frames))
    command = [
        _browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--enable-logging=stderr", f"--window-size={sum(widths)},{HEIGHT}", "--dump-dom",
        f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", around.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    (told,) = re.findall(r'data-told="([^"]*)"', done.stdout)
    measured = {int(width): each for width, each in json.loads(html.unescape(told)).items()}
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("L"))
    edges = np.cumsum((0, *widths))
    pictures = {w: pixels[:, a:b] for w, a, b in zip(widths, edges, edges[1:], strict=False)}
    said = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return measured, said, pictures


def _browser() -> str:
    """The path of a browser; the test is skipped without one, unless one is required."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("VARFILTER_REQUIRE_BROWSER"):
            pytest.fail("VARFILTER_REQUIRE_BROWSER is set, and there is no chromium")
        pytest.skip("needs chromium")
    return found
