"""SRNN on polyphonic music: under AVF, and under two hand-made posteriors.

    python examples/srnn_music.py FILE.npz [--updates 200] [--full]

FILE.npz holds piano rolls: for `train` and `test`, `*_rolls` (all songs one after another, 88
notes a step packed to 11 bytes) and `*_lengths`. Without a file it plays simulated chords.
`--full` takes the sizes of the paper. It prints:

      SRNN, AVF, update 0: 62.32 nats per step
      SRNN, AVF, update 40: 11.55 nats per step
      SRNN, AVF, update 80: 8.99 nats per step
      SRNN, AVF, update 120: 7.42 nats per step
      SRNN, AVF, update 160: 5.51 nats per step
      SRNN, q(x, h), update 0: 61.90 nats per step
      SRNN, q(x, h), update 40: 11.93 nats per step
      SRNN, q(x, h), update 80: 10.49 nats per step
      SRNN, q(x, h), update 120: 8.24 nats per step
      SRNN, q(x, h), update 160: 6.24 nats per step
      SRNN, q(x, h, z) + prior, update 0: 62.15 nats per step
      SRNN, q(x, h, z) + prior, update 40: 11.99 nats per step
      SRNN, q(x, h, z) + prior, update 80: 8.48 nats per step
      SRNN, q(x, h, z) + prior, update 120: 6.79 nats per step
      SRNN, q(x, h, z) + prior, update 160: 4.96 nats per step

    nats per step, held out            F       KL  q = prior  seconds
    independent notes              11.40
    SRNN, AVF                       6.38     0.24       6.87       14
      by iteration 6.94 6.38
    SRNN, q(x, h)                   6.27     0.83       7.50       10
    SRNN, q(x, h, z) + prior        6.01     0.67       7.07       12
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _comparison import Contestant, compare

import varfilter as vf
from varfilter.experiments import AVF, published_model
from varfilter.inference import SRNNPosterior, SRNNResidualPosterior

NUM_NOTES, NUM_STEPS = 88, 25


def read_rolls(path):
    """{split: songs as (steps, 88) arrays}."""
    with np.load(path) as file:
        return {
            split: np.split(
                np.unpackbits(file[f"{split}_rolls"], axis=1),
                np.cumsum(file[f"{split}_lengths"])[:-1],
            )
            for split in ("train", "test")
        }


def chords(num_songs=40, num_steps=60):
    """Songs that walk between the chords of a key, now and then with a passing note."""
    random = np.random.default_rng(0)
    songs = []
    for _ in range(num_songs):
        root = 40 + int(random.integers(12))
        degree, song = 0, np.zeros((num_steps, NUM_NOTES))
        for t in range(num_steps):
            if t % 4 == 0:
                degree = int(random.choice([0, 5, 7, 9, 2]))
            third = 3 if degree in (9, 2) else 4
            song[t, [root + degree - 12, root + degree, root + degree + third]] = 1
            if random.random() < 0.5:
                song[t, root + degree + int(random.choice([7, 9, 12]))] = 1
        songs.append(song)
    return {"train": songs[:32], "test": songs[32:]}


def windows(songs, num_steps):
    """Non-overlapping windows of all songs that are long enough."""
    cut = [s[: len(s) // num_steps * num_steps].reshape(-1, num_steps, NUM_NOTES) for s in songs]
    return jnp.asarray(np.concatenate(cut), jnp.float32)


def draw_from(songs, batch_size):
    """A function from a key to random windows of random songs."""
    songs = [song for song in songs if len(song) >= NUM_STEPS]
    joined = jnp.asarray(np.concatenate(songs), jnp.float32)
    lengths = jnp.asarray([len(song) for song in songs])
    begins = jnp.cumsum(lengths) - lengths

    @jax.jit
    def draw(key):
        key_song, key_start = jax.random.split(key)
        song = jax.random.randint(key_song, (batch_size,), 0, lengths.size)
        start = jax.random.uniform(key_start, (batch_size,)) * (lengths[song] - NUM_STEPS + 1)
        start = begins[song] + start.astype(jnp.int32)
        return jax.vmap(lambda s: jax.lax.dynamic_slice_in_dim(joined, s, NUM_STEPS))(start)

    return draw


def marginals(songs, test):
    """Nats per step of independent notes, each as frequent as in the training songs."""
    joined = np.concatenate(songs)
    rate = (joined.sum(0) + 0.5) / (len(joined) + 1)
    logits = jnp.asarray(np.log(rate / (1 - rate)), jnp.float32)
    notes = vf.Bernoulli(logits)
    return -float(jnp.mean(jax.vmap(notes.log_prob)(test[:, 1:].reshape(-1, NUM_NOTES))))


def contestants(*, full, key):
    """AVF and the two baselines, on the same model."""
    key_model, key_avf, key_plain, key_residual = jax.random.split(key, 4)
    if full:
        model, sizes, hidden = published_model("srnn-music", key_model), {}, 1024
    else:
        model = vf.SRNN(
            NUM_NOTES, 16, recurrent_size=48, prior_size=48, decoder_size=64, key=key_model
        )
        sizes, hidden = {"hidden_size": 64}, 128
    avf = AVF(hidden_size=hidden).build(model, key_avf)  # the paper's network
    adam = optax.adam(1e-3 if full else 5e-3)
    num_phi_steps = 12 if full else 4
    parallel = vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=num_phi_steps, complete=True)
    end_to_end = vf.EndToEnd(theta=adam, phi=adam, complete=True)
    plain = vf.Amortized(SRNNPosterior(model, key=key_plain, **sizes))
    residual = vf.Amortized(SRNNResidualPosterior(model, key=key_residual, **sizes))
    return {
        "SRNN, AVF": Contestant(parallel, model, vf.VariationalFilter(avf)),
        "SRNN, q(x, h)": Contestant(end_to_end, model, vf.VariationalFilter(plain)),
        "SRNN, q(x, h, z) + prior": Contestant(end_to_end, model, vf.VariationalFilter(residual)),
    }


def main(arguments=None):
    """Read, train, compare."""
    parser = argparse.ArgumentParser(description="SRNN on music, under AVF and its baselines.")
    parser.add_argument("file", nargs="?", help="an .npz of piano rolls; simulated if absent")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--full", action="store_true", help="the sizes of the paper")
    options = parser.parse_args(arguments)

    songs = read_rolls(options.file) if options.file else chords()
    test = windows(songs["test"], NUM_STEPS)
    key_build, key_train = jax.random.split(jax.random.key(0))
    return compare(
        contestants(full=options.full, key=key_build),
        draw_from(songs["train"], 16),
        test,
        ("independent notes", marginals(songs["train"], test)),
        num_updates=options.updates,
        num_annealing=options.updates // 2,
        key=key_train,
    )


if __name__ == "__main__":
    main()
