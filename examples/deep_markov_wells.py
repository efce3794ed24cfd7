"""A deep Markov model of a particle that hops between two wells: AVF beside a one-shot network.

    python examples/deep_markov_wells.py [--updates 300]

Six sensors see a particle that jitters in one of two wells and now and then hops to the other.
The model knows nothing of it at first. It prints:

      deep Markov, AVF, update 0: 14.05 nats per step
      deep Markov, AVF, update 60: 0.32 nats per step
      deep Markov, AVF, update 120: 0.44 nats per step
      deep Markov, AVF, update 180: 0.35 nats per step
      deep Markov, AVF, update 240: 0.37 nats per step
      deep Markov, one shot, update 0: 14.84 nats per step
      deep Markov, one shot, update 60: 0.72 nats per step
      deep Markov, one shot, update 120: 0.59 nats per step
      deep Markov, one shot, update 180: 0.56 nats per step
      deep Markov, one shot, update 240: 0.42 nats per step

    nats per step, held out            F       KL  q = prior  seconds
    one Gaussian a sensor           2.60
    deep Markov, AVF                0.27     1.19      10.32       13
      by iteration 3.40 0.30 0.27
    deep Markov, one shot           0.51     1.04       8.72        7
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax
from _comparison import Contestant, compare

import varfilter as vf
from varfilter.experiments import AVF
from varfilter.inference import MLPPosterior
from varfilter.models import NormalHead


def wells(num_sequences, key, num_steps=40):
    """Noisy bumps of a particle's place: z' = z + 0.4 (z - z^3) + noise."""
    key_start, key_push, key_noise = jax.random.split(key, 3)
    centres = jnp.linspace(-1.5, 1.5, 6)

    def walk(start, pushes):
        def step(z, push):
            z = jnp.clip(z + 0.4 * (z - z**3) + 0.25 * push, -1.8, 1.8)
            return z, z

        return jax.lax.scan(step, start, pushes)[1]

    starts = jax.random.uniform(key_start, (num_sequences,), minval=-1.5, maxval=1.5)
    zs = jax.vmap(walk)(starts, jax.random.normal(key_push, (num_sequences, num_steps)))
    bumps = jnp.exp(-(((zs[..., None] - centres[None, None]) / 0.5) ** 2))
    return bumps + 0.2 * jax.random.normal(key_noise, bumps.shape)


def constant(train, test):
    """Nats per step of one Gaussian for each sensor."""
    flat = train.reshape(-1, train.shape[-1])
    always = vf.Normal(flat.mean(0), jnp.log(flat.var(0)))
    return -float(jnp.mean(jax.vmap(always.log_prob)(test[:, 1:].reshape(-1, test.shape[-1]))))


def main(arguments=None):
    """Simulate, train, compare."""
    parser = argparse.ArgumentParser(description="A deep Markov model under AVF and a baseline.")
    parser.add_argument("--updates", type=int, default=300)
    options = parser.parse_args(arguments)

    keys = jax.random.split(jax.random.key(0), 6)
    train, test = wells(512, keys[0]), wells(64, keys[1])
    head = functools.partial(NormalHead, std=0.3)  # a guess of the sensors' noise
    model = vf.DeepMarkov(6, 3, hidden_size=32, head=head, key=keys[2])
    # The form that the figures above are of: the paper's.
    network = AVF(num_iterations=2, encode_observation=True, hidden_size=64)
    avf = network.build(model, keys[3])
    mlp = MLPPosterior(model, hidden_size=64, key=keys[4])
    adam = optax.adam(5e-3)
    return compare(
        {
            "deep Markov, AVF": Contestant(
                vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=4, complete=True),
                model,
                vf.VariationalFilter(avf),
            ),
            "deep Markov, one shot": Contestant(
                vf.EndToEnd(theta=adam, phi=adam, complete=True),
                model,
                vf.VariationalFilter(vf.Amortized(mlp)),
            ),
        },
        lambda key: train[jax.random.randint(key, (32,), 0, train.shape[0])],
        test,
        ("one Gaussian a sensor", constant(train, test)),
        num_updates=options.updates,
        num_annealing=options.updates // 2,
        key=keys[5],
    )


if __name__ == "__main__":
    main()
