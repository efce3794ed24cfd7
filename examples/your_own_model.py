"""Your own model: write five short functions, get every inference, filter, learner and stream.

    python examples/your_own_model.py
"""

import time

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

import varfilter as vf
from varfilter.testing import check_model


class HaresAndFoxes(vf.AbstractModel):
    """Hares and foxes on an island, counted by traps that fill up.

    z_t are the logarithms of their numbers. Hares breed, crowd each other and are caught, the
    more slowly the more of them there are; foxes live on what they catch (Rosenzweig and
    MacArthur 1963). The traps show which share of them is full:

        z_t = z_{t-1} + 0.3 drift(z_{t-1}) + noise,    x_t = sigmoid(z_t) + noise

    The five rates of the drift and both noises are learned.
    """

    log_rates: Array
    log_var: Array
    trap_log_var: Array

    def init(self, x0=None):  # the state is the prior of the next z
        return vf.Normal(jnp.zeros(2), jnp.zeros(2))

    def embed(self, x):  # the island does not care what we counted
        return None

    def prior(self, state):
        return state

    def emission(self, state, z):
        return vf.Normal(jax.nn.sigmoid(z), self.trap_log_var)

    def advance(self, state, z, features):
        breeding, crowding, catching, feeding, starving = jnp.exp(self.log_rates)
        hares, foxes = jnp.exp(z)
        caught = catching / (1.0 + hares)
        growth_of_hares = breeding - crowding * hares - caught * foxes
        growth_of_foxes = feeding * caught * hares - starving
        drift = jnp.stack([growth_of_hares, growth_of_foxes])
        return vf.Normal(z + 0.3 * drift, self.log_var)


def island(rates, noise, trap_noise):
    """The model with these rates and standard deviations."""
    return HaresAndFoxes(
        jnp.log(jnp.array(rates)),
        2.0 * jnp.log(jnp.full((2,), noise)),
        2.0 * jnp.log(jnp.full((2,), trap_noise)),
    )


def free_energy(filter, model, sequences, key):
    """Nats per step, averaged over sequences: the lower, the better (-log p is the limit)."""
    keys = jax.random.split(key, len(sequences))
    bounds = jax.vmap(lambda xs, key: vf.run(filter, model, xs, key)[1].bound)(sequences, keys)
    return -float(jnp.mean(bounds))


def main():
    key_data, key_lost, key_nets, key_run, key_learn = jax.random.split(jax.random.key(0), 5)

    # The data: 24 islands, 60 counts each, one count in ten lost. We know only the last 8 less.
    truth = island(rates=[1.0, 0.25, 1.0, 1.0, 0.5], noise=0.1, trap_noise=0.05)
    sequences, _ = jax.vmap(lambda key: vf.generate(truth, 60, key))(jax.random.split(key_data, 24))
    sequences = jnp.where(jax.random.bernoulli(key_lost, 0.1, sequences.shape), jnp.nan, sequences)
    train, test = sequences[:16], sequences[16:]

    # The model we start from is wrong in everything.
    model = island(rates=[0.5, 0.5, 0.5, 0.5, 0.5], noise=0.3, trap_noise=0.2)
    checks = check_model(model, jax.random.key(1))
    print(f"check_model: {len(checks)} checks passed\n")

    # Every inference in every filter. Networks are built to fit the model; none is trained yet.
    key_avf, key_mlp, key_lstm = jax.random.split(key_nets, 3)
    avf = vf.Iterative(
        model, normalize=vf.SignedLog(), hidden_size=32, num_iterations=2, key=key_avf
    )
    inferences = {
        "Prior": vf.Prior(),
        "GradientDescent": vf.GradientDescent(num_iterations=20),
        "Amortized": vf.Amortized(vf.MLPPosterior(model, hidden_size=32, key=key_mlp)),
        "Recurrent": vf.Recurrent(vf.LSTMPosterior(model, hidden_size=32, key=key_lstm)),
        "Iterative": avf,
    }
    filters = {
        "VariationalFilter": vf.VariationalFilter,
        "ParticleFilter": lambda inference: vf.ParticleFilter(inference, 100),
    }
    print(f"{'filter':<18} {'inference':<16} {'nats per step':>13} {'seconds':>8}")
    for filter_name, build in filters.items():
        for inference_name, inference in inferences.items():
            filter = build(inference)
            free_energy(filter, model, test, key_run)  # compiles
            begin = time.perf_counter()
            value = free_energy(filter, model, test, key_run)
            seconds = time.perf_counter() - begin
            print(f"{filter_name:<18} {inference_name:<16} {value:>13.2f} {seconds:>8.3f}")
    for filter in (vf.KalmanFilter(), vf.VariationalFilter(vf.Exact())):
        try:
            vf.start(filter, model)
        except TypeError as error:
            print(f"refused: {error}")

    # Learn the model and the inference together.
    filter = vf.VariationalFilter(avf)
    num_updates = 300
    learner = vf.TimeParallel(
        theta=optax.adam(optax.cosine_decay_schedule(5e-2, num_updates)),
        phi=optax.adam(1e-2),
        num_phi_steps=8,
    )
    learning = learner.init(model, filter)
    for update in range(num_updates):
        learning, _ = learner.update(learning, train, jax.random.fold_in(key_learn, update))
    learned, avf_filter = learning.model, learning.filter

    before = free_energy(filter, model, test, key_run)
    after = free_energy(avf_filter, learned, test, key_run)
    bootstrap = vf.ParticleFilter(vf.Prior(), 1000)
    print(f"\nfree energy on held-out islands: {before:.2f} before, {after:.2f} after learning")
    print(f"log-evidence by 1,000 particles: {-free_energy(bootstrap, learned, test, key_run):.2f}")
    print(f"log-evidence by 1,000 particles: {-free_energy(bootstrap, truth, test, key_run):.2f}")
    print(jnp.exp(learned.log_rates), jnp.exp(.5*learned.log_var),jnp.exp(.5*learned.trap_log_var))
    # Live: one count at a time, five lost to the snow, and a look ahead.
    stream = vf.Stream(avf_filter, learned, key_run)
    for x in test[0, :30]:
        filtered = stream.push(x)
    stream.skip(5)
    for x in test[0, 35:50]:
        filtered = stream.push(x)
    ahead = stream.forecast(10, levels=(0.05, 0.95))
    came = test[0, 50:]
    low, high = ahead.quantiles
    print(low, high, came)


if __name__ == "__main__":
    main()
