"""Clips of figures that walk, run and wave in front of a wall, all of them drawn by this script.

    python docs/pictures/walkers.py FOLDER [--clips 60] [--frames 40] [--seed 0]

Each clip is a GIF of grey frames of 64 by 64 pixels, named after what the figure does. The camera
stands still, and what it sees has a little noise, as that of a real one has. Nobody is in the
pictures, so they may be shown to anybody. With fewer frames the clips of a seed are the beginnings
of those with more.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE, RATE = 64, 12
# Drawn at so many times the size and shrunk, so that edges are smooth.
FINER = 4
# Standard deviation of the camera's noise, in levels of 256.
NOISE = 1.5
# Pixels a frame, and radians of a leg to either side.
PACE = {"walk": ((0.6, 1.0), 0.45), "run": ((1.2, 1.6), 0.75), "wave": ((0.0, 0.0), 0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the clips are written")
    parser.add_argument("--clips", type=int, default=60, metavar="N", help="how many (60)")
    parser.add_argument("--frames", type=int, default=40, metavar="N", help="of a clip (40)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (0)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    kinds = list(PACE)
    for number in range(given.clips):
        kind, random = kinds[number % len(kinds)], np.random.default_rng([given.seed, number])
        write(given.folder / f"{number:03}_{kind}.gif", clip(kind, given.frames, random))
    print(f"{given.clips} clips in {given.folder}")


def clip(kind: str, num_frames: int, random: np.random.Generator) -> np.ndarray:
    """Frames (time, height, width) of bytes of one figure, of a size and a pace of its own."""
    (slowest, fastest), swing = PACE[kind]
    pace, height = random.uniform(slowest, fastest), random.uniform(30, 38)
    towards = random.choice([-1, 1])
    # From near one edge to the other; who stays, stands anywhere between.
    start = random.uniform(18, 46) if pace == 0 else SIDE / 2 - towards * random.uniform(18, 26)
    phase, shade = random.uniform(0, 2 * math.pi), int(random.uniform(20, 70))
    behind, frames = wall(), []
    for t in range(num_frames):
        image = behind.copy()
        turn = phase + (0.35 * t if pace == 0 else 2.6 * pace * t / (height * swing))
        figure(ImageDraw.Draw(image), start + towards * pace * t, height, turn, swing, shade)
        small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), np.float64)
        frames.append(small + random.normal(0.0, NOISE, small.shape))
    return np.clip(np.rint(frames), 0, 255).astype(np.uint8)


def wall() -> Image.Image:
    """What is behind the figures: a wall with a door and a window, and the ground."""
    image = Image.new("L", (SIDE * FINER, SIDE * FINER), 175)
    draw = ImageDraw.Draw(image)
    boxes = {
        (0, 54, 64, 64): 120,
        (6, 22, 18, 54): 145,
        (36, 10, 56, 26): 215,
        (46, 10, 47, 26): 160,
    }
    for box, shade in boxes.items():
        draw.rectangle([FINER * edge for edge in box], fill=shade)
    return image


def figure(
    draw: ImageDraw.ImageDraw, x: float, height: float, turn: float, swing: float, shade: int
) -> None:
    """A head, a back, and legs and arms that swing; without a swing an arm waves."""
    hip = np.array([x, 58 - 0.48 * height - 0.02 * height * abs(math.cos(turn))])
    neck = hip - [0.0, 0.36 * height]
    lines = [(hip, neck, 0.12)]
    for side in (-1, 1):
        angle = side * swing * math.sin(turn)
        # The knee of the leg that comes forward is bent.
        knee = hip + 0.25 * height * direction(angle)
        bend = 0.9 * swing * max(0.0, side * math.cos(turn))
        lines += [(hip, knee, 0.075), (knee, knee + 0.25 * height * direction(angle - bend), 0.07)]
        arm, fore = -angle, -angle + 0.5 * swing
        if swing == 0.0 and side > 0:
            arm, fore = 2.2, 2.9 + 0.6 * math.sin(turn)
        elbow = neck + [0.0, 0.03 * height] + 0.18 * height * direction(arm)
        lines += [(neck, elbow, 0.05), (elbow, elbow + 0.18 * height * direction(fore), 0.045)]
    for begin, end, width in lines:
        thick = FINER * width * height
        draw.line([*(FINER * begin), *(FINER * end)], fill=shade, width=max(1, round(thick)))
        for joint in (begin, end):
            disc(draw, FINER * joint, thick / 2, shade)
    disc(draw, FINER * (neck - [0.0, 0.09 * height]), FINER * 0.075 * height, shade)


def direction(angle: float) -> np.ndarray:
    """A step of length one, downwards at an angle of 0."""
    return np.array([math.sin(angle), math.cos(angle)])


def disc(draw: ImageDraw.ImageDraw, at: np.ndarray, radius: float, shade: int) -> None:
    """A disc around a point."""
    draw.ellipse([*(at - radius), *(at + radius)], fill=shade)


def write(path: Path, frames: np.ndarray) -> None:
    """A GIF that repeats; its greys are kept as they are."""
    first, *rest = (Image.fromarray(frame) for frame in frames)
    first.save(path, save_all=True, append_images=rest, duration=round(1000 / RATE), loop=0)


if __name__ == "__main__":
    main()
