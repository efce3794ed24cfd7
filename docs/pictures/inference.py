"""Inference of one latent: the prior, the exact posterior, and q on its way between them.

    python docs/pictures/inference.py

makes `inference.png`, in about a minute. The model has one latent and one observation of it through
a bend, so that the posterior can be summed up on a grid. Its inference network is learned (AVF)
with the model held fixed; plain gradient descent on the same free energy stands beside it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from drawing import canvas, parser, save_both

import varfilter as vf
from varfilter.observation import observe
from varfilter.plots.style import (
    COLOURS,
    INK,
    NARROW,
    SMALL_PRINT,
    plain,
    title,
    x_label,
    y_label,
)

GRID = jnp.linspace(-4.0, 5.0, 2001)
NUM_ITERATIONS = 3
NUM_STEPS, RATE = 12, 0.03
OBSERVED = 1.35


class Bend(vf.AbstractModel):
    """z_t = 0.8 z_{t-1} + noise of 0.6; x_t = softplus(2 z_t - 1) + noise of 0.25."""

    rate: jax.Array

    def init(self, x0=None):
        return jnp.zeros(1)

    def embed(self, x):
        return None

    def prior(self, state):
        return vf.Normal(self.rate * state, jnp.full(1, 2 * np.log(0.6)))

    def emission(self, state, z):
        return vf.Normal(jax.nn.softplus(2.0 * z - 1.0), jnp.full(1, 2 * np.log(0.25)))

    def advance(self, state, z, features):
        return z


def main():
    options = parser(__doc__)
    options.add_argument("--updates", type=int, default=600, help="of the inference network")
    given = options.parse_args()
    key = jax.random.key(0)
    model = Bend(jnp.asarray(0.8))
    inference = learned(model, key, given.updates)
    state, x = jnp.array([-0.6]), jnp.array([OBSERVED])
    found = measured(model, inference, state, x, key)
    save_both(lambda width: picture(*found, width), given.out, "inference.png")


def learned(model, key, num_updates):
    """The network after so many updates, the model held fixed."""
    inference = vf.Iterative(model, num_iterations=NUM_ITERATIONS, num_samples=4, key=key)
    learner = vf.TimeParallel(theta=None, phi=optax.adam(2e-3))
    state = learner.init(model, vf.VariationalFilter(inference))
    simulate = jax.vmap(lambda each: vf.generate(model, 20, each)[0])
    for i in range(num_updates):
        xs = simulate(jax.random.split(jax.random.fold_in(key, i), 16))
        state, _ = learner.update(state, xs, jax.random.fold_in(key, 10_000 + i))
    return state.filter.inference


def by_network(model, inference, state, x, key):
    """q after 0, 1, ... iterations of the network."""
    seen = observe(model, state, x)
    found = [model.prior(state)]
    for number in range(1, NUM_ITERATIONS + 1):
        each = inference.with_num_iterations(number)
        found.append(each.infer(model, state, None, seen, key).posterior)
    return found


def by_descent(model, state, x, key):
    """q after 0, 1, ... steps of plain gradient descent on the free energy."""

    @jax.jit
    @jax.grad
    def slope(q):
        return vf.free_energy(q, model, state, x, key, num_samples=64, is_paired=True).total

    found = [model.prior(state)]
    for _ in range(NUM_STEPS):
        found.append(jax.tree.map(lambda value, by: value - RATE * by, found[-1], slope(found[-1])))
    return found


def exact(model, state, x):
    """(the posterior's density on the grid, -log p(x_t | past)), both summed on the grid."""
    points = GRID[:, None]
    log_joint = jax.vmap(
        lambda z: model.prior(state).log_prob(z) + model.emission(state, z).log_prob(x)
    )(points)
    log_evidence = jax.nn.logsumexp(log_joint) + jnp.log(GRID[1] - GRID[0])
    return jnp.exp(log_joint - log_evidence), -float(log_evidence)


def measured(model, inference, state, x, key):
    """(the exact posterior, q of the network, free energies by the way there, the least)."""
    posterior, least = exact(model, state, x)
    network = by_network(model, inference, state, x, key)

    @jax.jit
    def energy(q):
        return vf.free_energy(q, model, state, x, key, num_samples=4000, is_paired=True).total

    ways = {f"gradient descent, rate {RATE}": by_descent(model, state, x, key)}
    ways |= {"AVF, learned": network}
    energies = {name: [float(energy(q)) for q in way] for name, way in ways.items()}
    for name, values in energies.items():
        print(name, [round(value, 3) for value in values], round(least, 3))
    return posterior, network, energies, least


def picture(posterior, network, energies, least, width):
    """The densities, and beside them, or on a phone below, the free energy of each of them."""
    is_narrow = width == NARROW
    figure = canvas(width, 5.4 if is_narrow else 3.1)
    if is_narrow:
        left, right = figure.subplots(2, 1)
    else:
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    density = jax.vmap(lambda z, q: jnp.exp(q.log_prob(z)), in_axes=(0, None))
    for number, q in enumerate(network):
        colour, label = (SMALL_PRINT, "prior") if number == 0 else (COLOURS[0], "q")
        strength = 1.0 if number == 0 else 0.35 + 0.65 * number / NUM_ITERATIONS
        label = label if number == 0 else f"q after {number} of {NUM_ITERATIONS}"
        left.plot(
            GRID, density(GRID[:, None], q), color=colour, alpha=strength, lw=1.5, label=label
        )
    left.fill_between(GRID, posterior, color=COLOURS[1], alpha=0.25, lw=0, label="exact posterior")
    left.set_xlim(-2.5, 2.5)
    left.legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper left")
    title(left, "what is believed of one latent")
    x_label(left, "z")
    y_label(left, "density")
    right.axhline(least, color=COLOURS[1], lw=1.2, ls="--")
    right.text(
        NUM_STEPS, least, "no q is lower: $-\\log p(x_t\\,|\\,$past$)$", va="bottom", ha="right",
        fontsize=8, color=COLOURS[1],
    )  # fmt: skip
    for (label, values), colour in zip(energies.items(), (SMALL_PRINT, COLOURS[0]), strict=True):
        right.plot(range(len(values)), values, "o-", ms=3.5, color=colour, lw=1.3, label=label)
    right.legend(fontsize=8, frameon=False, labelcolor=INK)
    title(right, "its free energy")
    x_label(right, "iteration")
    y_label(right, "$F_t$, nats")
    for axis in (left, right):
        plain(axis)
    return figure


if __name__ == "__main__":
    main()
