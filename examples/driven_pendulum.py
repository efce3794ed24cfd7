"""A pendulum that is pushed, measured at odd times: known inputs, learned and forecast.

    python examples/driven_pendulum.py [--updates 600]

takes some two minutes on two cores. A motor pushes a pendulum; a sensor says where its bob is,
at irregular times. The torque and the time that passed since the last reading are known, so they
are inputs: the model is told them before each step, never has to predict them, and a forecast
asks what happens *if* the motor does this or that. It prints

    held-out pendulums   nats per step  forecast RMSE  90% band
    with inputs                  -1.53          0.243      0.93
    without                      -0.22          0.498      0.79

    the sine of the angle a second later, if the motor ...
      pushes left   -0.25 (-0.61 to  0.15); true -0.26
      lets go        0.56 ( 0.23 to  0.92); true  0.66
      pushes right   0.65 ( 0.26 to  1.03); true  0.90
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

import varfilter as vf
from varfilter.experiments import AVF
from varfilter.models import NormalHead

NUM_TRAIN, NUM_TEST, NUM_STEPS = 256, 64, 40
HORIZON, START = 15, 25


def swing(key, num_sequences, num_steps):
    """Simulate pendulums: (readings of the sine and cosine of the angle, inputs, true states)."""
    key_state, key_torque, key_gap, key_noise = jax.random.split(key, 4)
    shape = (num_sequences, num_steps)
    gaps = jax.random.choice(key_gap, jnp.array([0.05, 0.1, 0.2, 0.4]), shape)
    # The motor holds a torque for eight steps, then takes another.
    torques = jax.random.uniform(
        key_torque, (num_sequences, -(-num_steps // 8)), minval=-6.0, maxval=6.0
    )
    us = jnp.stack([jnp.repeat(torques, 8, axis=1)[:, :num_steps], gaps], axis=-1)
    states = jax.vmap(move)(jax.random.normal(key_state, (num_sequences, 2)), us)
    places = jnp.stack([jnp.sin(states[..., 0]), jnp.cos(states[..., 0])], axis=-1)
    return places + 0.05 * jax.random.normal(key_noise, places.shape), us, states


def move(state, us):
    """(angle, speed) after each step, whose torque and duration are known; 20 small steps each."""

    def step(state, u):
        torque, gap = u

        def small(_, state):
            angle, speed = state
            speed = speed + gap / 20 * (torque - 9.8 * jnp.sin(angle) - 0.3 * speed)
            return jnp.stack([angle + gap / 20 * speed, speed])

        state = jax.lax.fori_loop(0, 20, small, state)
        return state, state

    return jax.lax.scan(step, state, us)[1]


def learned(xs, us, key, num_updates):
    """Train a model and its inference (AVF) from nothing; us is None for one without inputs."""
    key_model, key_avf, key_fit = jax.random.split(key, 3)
    model = vf.SRNN(
        2, 8,
        recurrent_size=64, prior_size=64, decoder_size=64,
        head=functools.partial(NormalHead, std=0.1),
        input_size=0 if us is None else us.shape[-1],
        key=key_model,
    )  # fmt: skip
    # The form that the figures above are of: the paper's.
    filter = vf.VariationalFilter(AVF(hidden_size=64).build(model, key_avf))
    learner = vf.TimeParallel(
        theta=optax.adam(optax.cosine_decay_schedule(3e-3, num_updates)),
        phi=optax.adam(1e-3),
        num_phi_steps=8,
    )
    state = learner.init(model, filter)
    for update in range(num_updates):
        key_update = jax.random.fold_in(key_fit, update)
        rows = jax.random.choice(key_update, xs.shape[0], (32,), replace=False)
        batch = None if us is None else us[rows]
        state, _ = learner.update(state, xs[rows], key_update, us=batch)
    return state.model, vf.ParticleFilter(state.filter.inference, 64)


def score(model, filter, xs, us, key):
    """Nats per step on sequences that learning never saw; the lower the better."""

    def one(xs, us, key):
        return jnp.mean(vf.run(filter, model, xs, key, us=us)[1].surprise)

    keys = jax.random.split(key, xs.shape[0])
    return float(jnp.mean(jax.vmap(one)(xs, us, keys)))


def ahead(model, filter, xs, us, key):
    """Forecast each sequence from START on, under the inputs it got: (errors, coverage)."""

    def one(xs, us, key):
        past = None if us is None else us[:START]
        future = None if us is None else us[START : START + HORIZON]
        belief, _ = vf.run(filter, model, xs[:START], key, us=past)
        found = vf.forecast(filter, model, belief, HORIZON, key, us=future, levels=(0.05, 0.95))
        came = xs[START : START + HORIZON]
        low, high = found.quantiles
        return (came - found.mean) ** 2, (came >= low) & (came <= high)

    errors, covered = jax.vmap(one)(xs, us, jax.random.split(key, xs.shape[0]))
    return float(jnp.sqrt(jnp.mean(errors))), float(jnp.mean(covered))


def main(num_updates):
    key_data, key_learn, key_run = jax.random.split(jax.random.key(0), 3)
    xs, us, states = swing(key_data, NUM_TRAIN + NUM_TEST, NUM_STEPS)
    scale = jnp.std(us, axis=(0, 1))  # inputs of order one, as networks like them
    us = us / scale[None, None]
    train, test = slice(0, NUM_TRAIN), slice(NUM_TRAIN, None)

    print(f"{'held-out pendulums':<20} {'nats per step':>13} {'forecast RMSE':>14} {'90% band':>9}")
    found = {}
    for name, inputs in (("with inputs", us), ("without", None)):
        seen, unseen = (None, None) if inputs is None else (inputs[train], inputs[test])
        model, filter = found[name] = learned(xs[train], seen, key_learn, num_updates)
        nats = score(model, filter, xs[test], unseen, key_run)
        error, covered = ahead(model, filter, xs[test], unseen, key_run)
        print(f"{name:<20} {nats:>13.2f} {error:>14.3f} {covered:>9.2f}")

    # The same past, three plans for the motor.
    model, filter = found["with inputs"]
    belief, _ = vf.run(filter, model, xs[-1, :START], key_run, us=us[-1, :START])
    print("\nthe sine of the angle a second later, if the motor ...")
    for name, torque in (("pushes left", -5.0), ("lets go", 0.0), ("pushes right", 5.0)):
        plan = jnp.tile(jnp.array([torque, 0.1]), (10, 1))
        what_if = vf.forecast(
            filter, model, belief, 10, key_run, us=plan / scale[None], levels=(0.05, 0.95)
        )
        low, high = what_if.quantiles[:, -1, 0]
        came = jnp.sin(move(states[-1, START - 1], plan)[-1, 0])
        mean = what_if.mean[-1, 0]
        print(f"  {name:<13} {mean:5.2f} ({low:5.2f} to {high:5.2f}); true {came:5.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=600)
    main(parser.parse_args().updates)
