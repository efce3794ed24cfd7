"""VRNN on speech: under AVF, and under its hand-made posterior.

    python examples/vrnn_speech.py FOLDER [--updates 200] [--full]

FOLDER holds WAV or FLAC files (`pip install soundfile`). They are cut into frames of 200
samples; the last eighth of them, by name, is held out. `--full` takes the sizes of the paper,
for a GPU. Without a folder it listens to simulated vowels. It prints:

      VRNN, AVF, update 0: 1873.89 nats per step
      VRNN, AVF, update 40: 1681.55 nats per step
      VRNN, AVF, update 80: 1585.60 nats per step
      VRNN, AVF, update 120: 1597.48 nats per step
      VRNN, AVF, update 160: 1607.66 nats per step
      VRNN, baseline, update 0: 2379.61 nats per step
      VRNN, baseline, update 40: 1785.31 nats per step
      VRNN, baseline, update 80: 1633.17 nats per step
      VRNN, baseline, update 120: 1612.14 nats per step
      VRNN, baseline, update 160: 1619.87 nats per step

    nats per step, held out            F       KL  q = prior  seconds
    unit Gaussian                1784.28
    VRNN, AVF                    1584.11     2.09    1776.27       52
      by iteration 1703.19 1601.26 1584.11
    VRNN, baseline               1588.43     3.47    1623.14       30
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _comparison import Contestant, compare

import varfilter as vf
from varfilter.data import Family
from varfilter.experiments import AVF, Observations, VRNNSizes
from varfilter.inference import VRNNPosterior
from varfilter.models import VaryingNormalHead

FRAME = 200


def read_speech(folder):
    """Mono waveforms as whole numbers, and the files' names."""
    import soundfile

    paths = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in (".wav", ".flac"))
    if not paths:
        raise SystemExit(f"`FOLDER` must hold WAV or FLAC files; found none in {folder}.")
    return [np.atleast_2d(soundfile.read(path, dtype="int16")[0].T)[0] for path in paths]


def vowels(num_files=32, seconds=1.5, rate=16000):
    """Buzzing sounds of random pitch through two resonances, which glide."""
    random = np.random.default_rng(0)
    time = np.arange(int(seconds * rate)) / rate
    files = []
    for _ in range(num_files):
        pitch = random.uniform(90, 220) * (
            1 + 0.1 * np.sin(2 * np.pi * random.uniform(1, 3) * time)
        )
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        tones = np.arange(1, 20)[:, None]
        formants = random.uniform([[250], [900]], [[800], [2400]], (2, 1))
        gain = sum(np.exp(-(((tones * pitch - f) / 150) ** 2)) for f in formants) + 0.02
        wave = (gain * np.sin(tones * phase)).sum(0) + 0.02 * random.normal(size=time.size)
        loudness = np.clip(np.sin(2 * np.pi * random.uniform(1.5, 3) * time), 0.05, None)
        files.append((3000 * loudness * wave).astype(np.int16))
    return files


class Speech:
    """Files in frames, standardised by the training part."""

    def __init__(self, files, num_steps):
        self.num_steps = num_steps
        count = max(1, len(files) // 8)
        train, held_out = files[:-count], files[-count:]
        everything = np.concatenate(train).astype(np.float64)
        self.mean, self.std = everything.mean(), everything.std()
        self.width = float(1.0 / self.std)  # one level of the 16 bits
        self.stream = jnp.asarray((everything - self.mean) / self.std, jnp.float32)
        self.test = jnp.concatenate([self._windows(file) for file in held_out])[:64]

    def _windows(self, file):
        count = file.size // (FRAME * self.num_steps)
        whole = file[: count * FRAME * self.num_steps].reshape(count, self.num_steps, FRAME)
        return jnp.asarray((whole - self.mean) / self.std, jnp.float32)

    def draw(self, key, batch_size):
        """Windows from anywhere in the training part."""
        length = FRAME * self.num_steps
        starts = jax.random.randint(key, (batch_size,), 0, self.stream.size - length)
        windows = jax.vmap(lambda s: jax.lax.dynamic_slice(self.stream, (s,), (length,)))(starts)
        return windows.reshape(batch_size, self.num_steps, FRAME)

    def unit_gaussian(self):
        """Nats per step of N(0, 1) on the held-out windows: what learning nothing costs."""
        wide = jnp.zeros((FRAME,))
        one = vf.DiscretizedNormal(wide, wide, self.width)
        scored = self.test[:, 1:].reshape(-1, FRAME)
        return -float(jnp.mean(jax.vmap(one.log_prob)(scored)))


def build(width, *, full, key):
    """(VRNN, its baseline posterior, options of AVF's network)."""
    key_model, key_posterior = jax.random.split(key)
    if full:
        speech = Observations("speech", (FRAME,), Family(vf.DiscretizedNormal, width))
        model = VRNNSizes().build(speech, key_model)
        return model, VRNNPosterior(model, key=key_posterior), {}
    model = vf.VRNN(
        FRAME, 32, recurrent_size=128, data_feature_size=64, latent_feature_size=64,
        prior_size=64, decoder_size=128, num_layers=2,
        head=lambda *args, **options: VaryingNormalHead(*args, width=width, **options),
        key=key_model,
    )  # fmt: skip
    posterior = VRNNPosterior(model, hidden_size=64, num_layers=2, key=key_posterior)
    return model, posterior, {"hidden_size": 128}


def contestants(model, posterior, avf_options, *, learning_rate, key):
    """AVF with two iterations, and the baseline."""
    avf = AVF(num_iterations=2, **avf_options).build(model, key)  # the paper's network
    adam = optax.chain(optax.clip_by_global_norm(1000.0), optax.adam(learning_rate))
    parallel = vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=8, complete=True)
    end_to_end = vf.EndToEnd(theta=adam, phi=adam, complete=True)
    return {
        "VRNN, AVF": Contestant(parallel, model, vf.VariationalFilter(avf)),
        "VRNN, baseline": Contestant(
            end_to_end, model, vf.VariationalFilter(vf.Amortized(posterior))
        ),
    }


def main(arguments=None):
    """Read, train, compare."""
    parser = argparse.ArgumentParser(description="VRNN on speech, under AVF and its baseline.")
    parser.add_argument("folder", nargs="?", help="WAV or FLAC files; simulated vowels if absent")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--full", action="store_true", help="the sizes of the paper, for a GPU")
    options = parser.parse_args(arguments)

    files = read_speech(options.folder) if options.folder else vowels()
    return run(files, full=options.full, num_updates=options.updates)


def run(files, *, full, num_updates):
    """Train on seven eighths of the files, compare on the rest."""
    speech = Speech(files, num_steps=40 if full else 20)
    key_build, key_avf, key_train = jax.random.split(jax.random.key(0), 3)
    model, posterior, avf_options = build(speech.width, full=full, key=key_build)
    rate = 3e-4 if full else 1e-3
    rows = contestants(model, posterior, avf_options, learning_rate=rate, key=key_avf)
    batch_size = 64 if full else 16
    reference = ("unit Gaussian", speech.unit_gaussian())
    return compare(
        rows, jax.jit(lambda key: speech.draw(key, batch_size)), speech.test, reference,
        num_updates=num_updates, num_annealing=num_updates // 5, key=key_train,
    )  # fmt: skip


if __name__ == "__main__":
    main()
