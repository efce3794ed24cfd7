"""What the scripts of these pictures share: where they write, and in which form.

Each script makes the pictures that its first lines name, and writes them beside itself unless
`--out` says otherwise. Colours and letters are those of the reports (`varfilter.plots.style`), and
as there most pictures are drawn twice, wide for screens and narrow for phones: `NAME.png` is what a
page names, and the site shows `NAME_narrow.png` where there is less room.
"""

import argparse
import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from varfilter.plots.style import NARROW, WIDE, Painter

HERE = Path(__file__).parent
# Dots an inch: pages show a picture at half of its pixels, so that it is sharp on fine screens.
RESOLUTION = {WIDE: 160, NARROW: 200}


def parser(about: str) -> argparse.ArgumentParser:
    """A parser whose help is the text that the script begins with."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, default=HERE, help="the folder to write to")
    return made


def canvas(width: float, height: float, resolution: int | None = None) -> Figure:
    """An empty figure, in inches; its resolution is that of its width unless given."""
    resolution = RESOLUTION[width] if resolution is None else resolution
    figure = Figure(figsize=(width, height), dpi=resolution, facecolor="white")
    figure.set_layout_engine("constrained")
    return figure


def save_both(paint: Painter, folder: Path, name: str) -> None:
    """Write a picture as it is drawn for a screen, and beside it as it is drawn for a phone."""
    path = Path(name)
    save(paint(WIDE), folder, name)
    save(paint(NARROW), folder, f"{path.stem}_narrow{path.suffix}")


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a PNG of 64 colours at most: a third of the bytes, and nobody sees it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    folder.mkdir(parents=True, exist_ok=True)
    with Image.open(buffer) as image:
        image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(
            folder / name, optimize=True
        )
    print(folder / name)
