"""SVG on video: under AVF, and under its hand-made recurrent posterior.

    python examples/svg_video.py FOLDER [--updates 400] [--size 8|16|32|64]

FOLDER holds films that PyAV reads (`pip install 'varfilter[video]'`); they are made grey and
square, every third frame is taken, and the last eighth of them, by name, is held out. `--size 64`
takes the networks of the paper, for a GPU, as 32 does; 8 makes thumbnails, for a laptop. Without
a folder it watches a simulated lamp. It prints:

      SVG, AVF, update 0: 402.48 nats per step
      SVG, AVF, update 80: 198.36 nats per step
      SVG, AVF, update 160: 185.05 nats per step
      SVG, AVF, update 240: 183.87 nats per step
      SVG, AVF, update 320: 183.22 nats per step
      SVG, baseline, update 0: 403.42 nats per step
      SVG, baseline, update 80: 210.86 nats per step
      SVG, baseline, update 160: 198.32 nats per step
      SVG, baseline, update 240: 195.33 nats per step
      SVG, baseline, update 320: 199.50 nats per step

    nats per step, held out            F       KL  q = prior  seconds
    previous frame                285.26
    SVG, AVF                      185.95     3.61     218.52       55
      by iteration 227.38 185.95
    SVG, baseline                 191.07     0.01     191.06       37
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _comparison import Contestant, compare

import varfilter as vf
from varfilter.data.video import VIDEOS, read_video
from varfilter.demo.worlds import bob
from varfilter.experiments import AVF
from varfilter.inference import SVGPosterior
from varfilter.models import NormalImage
from varfilter.nn import VGG

# By the side of the images. The latents are about as many as the original SVG had for films like
# these; the AVF paper's runs had 512, and no skips.
SIZES = {
    8: {"coder": VGG(((16, 16),)), "latent": 8, "code": 16, "recurrent": 32},
    16: {"coder": VGG(((16,) * 2, (32,) * 2)), "latent": 16, "code": 32, "recurrent": 48},
    32: {
        "coder": VGG(((32,) * 2, (64,) * 2, (128,) * 2)),
        "latent": 32,
        "code": 64,
        "recurrent": 128,
    },
    64: {"coder": VGG(), "latent": 32, "code": 128, "recurrent": 256},
}
LEARNING_RATES = {8: 3e-3, 16: 1e-3, 32: 1e-3, 64: 3e-4}
EVERY = 3  # frames: from one to the next hardly anything moves, and there is little to infer


def read_films(folder, size):
    """Grey films (frames, 1, size, size) of bytes."""
    paths = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in VIDEOS)
    if not paths:
        raise SystemExit(f"`FOLDER` must hold films, such as AVI or MP4; found none in {folder}.")
    return [read_video(path, size) for path in paths]


def lamps(size, num_films=64, num_steps=60):
    """Films of a lamp in the fog, on a wheel that turns this way and that at random."""
    turns = 0.4 * jax.random.normal(jax.random.key(0), (num_films, num_steps))
    films = jax.vmap(jax.vmap(lambda angle: bob(angle, size)))(jnp.cumsum(turns, axis=1))
    return list(np.asarray(jnp.round(115 + 130 * films)).astype(np.uint8)[:, :, None])


def cut(films, num_steps):
    """Overlapping windows (count, num_steps, 1, size, size) of every third frame."""
    pieces = [
        film[start : start + num_steps * EVERY : EVERY]
        for film in films
        for start in range(0, len(film) - num_steps * EVERY + 1, max(1, num_steps))
    ]
    return jnp.asarray(np.stack(pieces))


def previous_frame(train, test):
    """Nats per frame of N(last frame, s^2), with s from the training films."""
    change = (train[:, 1:].astype(jnp.float32) - train[:, :-1].astype(jnp.float32)) / 255
    log_var = jnp.log(jnp.mean(change**2))

    def score(before, now):
        guess = vf.DiscretizedNormal(
            before, jnp.full(before.shape, log_var), 1 / 255, low=0.0, high=1.0
        )
        return guess.log_prob(now)

    before, now = (test[:, cut].reshape(-1, *test.shape[2:]) for cut in (slice(-1), slice(1, None)))
    return -float(jnp.mean(jax.lax.map(lambda pair: score(*pair), (before, now))))


def contestants(size, key):
    """AVF and the recurrent baseline, on the same model."""
    key_model, key_avf, key_posterior = jax.random.split(key, 3)
    sizes = SIZES[size]
    # Near the noise of real films from the start: with the default of 1 the latents are worth
    # nothing for so long that learning gives them up.
    model = vf.SVG(
        1, sizes["latent"], coder=sizes["coder"], code_size=sizes["code"],
        recurrent_size=sizes["recurrent"], head=NormalImage(std=0.05), key=key_model,
    )  # fmt: skip
    hidden, posterior_size = 4 * sizes["recurrent"], sizes["recurrent"]
    avf = AVF(hidden_size=hidden, num_layers=1).build(model, key_avf)  # the paper's network
    posterior = SVGPosterior(model, hidden_size=posterior_size, key=key_posterior)
    adam = optax.chain(optax.clip_by_global_norm(1e4), optax.adam(LEARNING_RATES[size]))
    parallel = vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=4, complete=True)
    end_to_end = vf.EndToEnd(theta=adam, phi=adam, complete=True)
    return {
        "SVG, AVF": Contestant(parallel, model, vf.VariationalFilter(avf)),
        "SVG, baseline": Contestant(
            end_to_end, model, vf.VariationalFilter(vf.Recurrent(posterior))
        ),
    }


def main(arguments=None):
    """Read, train, compare."""
    parser = argparse.ArgumentParser(description="SVG on video, under AVF and its baseline.")
    parser.add_argument("folder", nargs="?", help="AVI or MP4 files; simulated if absent")
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--size", type=int, choices=SIZES, default=8, help="64: the paper's")
    options = parser.parse_args(arguments)
    size = options.size
    films = read_films(options.folder, size) if options.folder else lamps(size)
    return run(films, num_updates=options.updates)


def run(films, *, num_updates):
    """Train on seven eighths of the films, compare on the rest."""
    size = films[0].shape[-1]
    num_steps, batch_size = (9, 8) if size < 32 else (13, 20)
    count = max(1, len(films) // 8)
    train, test = cut(films[:-count], num_steps), cut(films[-count:], num_steps)[:32]
    test = test.astype(jnp.float32) / 255

    @jax.jit
    def draw(key):
        chosen = jax.random.randint(key, (batch_size,), 0, train.shape[0])
        return train[chosen].astype(jnp.float32) / 255

    key_build, key_train = jax.random.split(jax.random.key(0))
    reference = ("previous frame", previous_frame(train, test))
    rows = contestants(size, key_build)
    return compare(
        rows, draw, test, reference,
        num_updates=num_updates, num_annealing=num_updates // 2, key=key_train,
    )  # fmt: skip


if __name__ == "__main__":
    main()
