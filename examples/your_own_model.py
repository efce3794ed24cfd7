"""Your own model: write five short functions, get every inference, filter, learner and stream.

    python examples/your_own_model.py

takes under a minute on two cores, most of it compiling. It checks the model, runs everything on
it, learns it together with an inference network (AVF), and watches a sequence live:

    check_model: 22 checks passed
    inferences that fit: Iterative, GradientDescent, Amortized, Recurrent, Prior

    filter, inference (untrained)  nats per step  seconds
    Variational, Prior                      2.66    0.004
    Variational, GradientDescent            1.71    0.020
    Variational, Iterative (AVF)            9.17    0.013
    Particle, Prior (bootstrap)            -0.80    0.032
    ...
    Kalman                         `KalmanFilter` is exact only for `LinearGaussian`; got ...

    nats per step on the island that learning never saw
      AVF, before learning       9.17
      AVF, after learning       -1.88
      -log p, learned model     -2.26
      -log p, true model        -2.79

    after 50 steps: 2.05 hares and 0.75 foxes per trap
      1 ahead: hares in 0.53 to 0.84 of the traps (came 0.70), foxes in 0.19 to 0.55 (came 0.43)
      ...
"""

import time

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

import varfilter as vf
from varfilter.inference import Exact, Gradients, Highway, LSTMPosterior, MLPPosterior, SignedLog
from varfilter.testing import check_model


class HaresAndFoxes(vf.AbstractModel):
    """Hares and foxes on an island, counted by traps.

    z_t are the logarithms of their numbers. Hares breed and crowd each other; foxes live on the
    hares they catch, of which no fox can eat ever more (Rosenzweig and MacArthur 1963). The
    traps show which share of them is full, and the more there are, the less that tells:

        z_t = z_{t-1} + 0.3 drift(z_{t-1}) + noise,    x_t = sigmoid(z_t) + noise

    The five rates of the drift and the sizes of both noises are learned.
    """

    log_rates: Array
    log_var: Array
    trap_log_var: Array

    def init(self, x0=None):  # the state is the prior of the next z
        return vf.Normal(jnp.zeros(2), jnp.zeros(2))

    def embed(self, x):  # what was counted has no effect on the island
        return None

    def prior(self, state):
        return state

    def emission(self, state, z):
        return vf.Normal(jax.nn.sigmoid(z), self.trap_log_var)

    def advance(self, state, z, features):
        breeding, crowding, catching, feeding, starving = jnp.exp(self.log_rates)
        hares, foxes = jnp.exp(z)
        caught = catching / (1.0 + hares)  # the share of the hares that one fox catches
        drift = [breeding - crowding * hares - caught * foxes, feeding * caught * hares - starving]
        return vf.Normal(z + 0.3 * jnp.stack(drift), self.log_var)


def island(rates, noise, trap_noise):
    """The model with these rates and standard deviations."""
    return HaresAndFoxes(
        log_rates=jnp.log(jnp.array(rates)),
        log_var=2.0 * jnp.log(jnp.array([noise, noise])),
        trap_log_var=2.0 * jnp.log(jnp.array([trap_noise, trap_noise])),
    )


def main():
    key_data, key_lost, key_new, key_nets, key_learn, key_run = jax.random.split(
        jax.random.key(0), 6
    )

    # 32 islands to learn from, and one more to watch. One count in ten is lost (NaN).
    truth = island([1.0, 0.25, 1.0, 1.0, 0.5], noise=0.1, trap_noise=0.05)
    simulate = jax.vmap(lambda key: vf.generate(truth, 60, key)[0])
    train = simulate(jax.random.split(key_data, 32))
    train = jnp.where(jax.random.bernoulli(key_lost, 0.1, train.shape), jnp.nan, train)
    xs, _ = vf.generate(truth, 300, key_new)

    # What we believe of the islands at first: everything is wrong.
    model = island([0.5, 0.5, 0.5, 0.5, 0.5], noise=0.3, trap_noise=0.2)
    checks = check_model(model, key_run)
    print(f"check_model: {len(checks)} checks passed")
    print(f"inferences that fit: {checks[-1].note}")

    untrained = try_everything(model, xs, key_nets, key_run)
    learned, filter = learn(model, untrained, train, key_learn)

    evidence = vf.ParticleFilter(vf.Prior(), 500)  # close to -log p, for 500 times the states
    print("\nnats per step on the island that learning never saw")
    print(f"  AVF, before learning     {free_energy(untrained, model, xs, key_run):6.2f}")
    print(f"  AVF, after learning      {free_energy(filter, learned, xs, key_run):6.2f}")
    print(f"  -log p, learned model    {free_energy(evidence, learned, xs, key_run):6.2f}")
    print(f"  -log p, true model       {free_energy(evidence, truth, xs, key_run):6.2f}")

    watch(filter, learned, xs, key_run)


def free_energy(filter, model, xs, key):
    """Nats per step: the lower the better; -log p(xs) is the least there is."""
    _, filtered = vf.run(filter, model, xs, key)
    return -float(jnp.mean(filtered.bound))


def try_everything(model, xs, key_nets, key_run):
    """Run every inference and filter on the model; return the filter to be trained."""
    key_avf, key_mlp, key_lstm = jax.random.split(key_nets, 3)
    avf = vf.Iterative(  # the settings that the figures above are of
        model, num_iterations=2, encode_observation=True, normalize=SignedLog(), update=Highway,
        signal=Gradients(), hidden_size=64, key=key_avf,
    )  # fmt: skip
    mlp = MLPPosterior(model, hidden_size=64, key=key_mlp)
    lstm = LSTMPosterior(model, hidden_size=64, key=key_lstm)
    filters = {
        "Variational, Prior": vf.VariationalFilter(vf.Prior()),
        "Variational, GradientDescent": vf.VariationalFilter(vf.GradientDescent()),
        "Variational, Amortized": vf.VariationalFilter(vf.Amortized(mlp)),
        "Variational, Recurrent": vf.VariationalFilter(vf.Recurrent(lstm)),
        "Variational, Iterative (AVF)": vf.VariationalFilter(avf),
        "Particle, Prior (bootstrap)": vf.ParticleFilter(vf.Prior(), 500),
        "Particle, Iterative (AVF)": vf.ParticleFilter(avf, 500),
        "Variational, Exact": vf.VariationalFilter(Exact()),
        "Kalman": vf.KalmanFilter(),
    }
    print(f"\n{'filter, inference (untrained)':<30} {'nats per step':>13} {'seconds':>8}")
    for name, filter in filters.items():
        try:
            free_energy(filter, model, xs, key_run)  # compiles
        except TypeError as refusal:
            print(f"{name:<30} {refusal}")
            continue
        begin = time.perf_counter()
        nats = free_energy(filter, model, xs, key_run)
        print(f"{name:<30} {nats:>13.2f} {time.perf_counter() - begin:>8.3f}")
    return filters["Variational, Iterative (AVF)"]


def learn(model, filter, train, key, num_updates=300):
    """Train model and inference together: amortized variational filtering."""
    learner = vf.TimeParallel(
        theta=optax.adam(optax.cosine_decay_schedule(0.05, num_updates)),
        phi=optax.adam(0.005),
        num_phi_steps=16,
    )
    state = learner.init(model, filter)
    for update in range(num_updates):
        state, metrics = learner.update(state, train, jax.random.fold_in(key, update))
        if update % 100 == 0:
            print(f"update {update:3}: free energy {metrics.free_energy:.2f} nats per step")
    return state.model, state.filter


def watch(filter, model, xs, key):
    """Live: one count at a time, five missed, then a look ahead."""
    stream = vf.Stream(filter, model, key)
    for x in xs[:30]:
        stream.push(x)
    stream.skip(5)
    for x in xs[35:50]:
        filtered = stream.push(x)
    hares, foxes = jnp.exp(filtered.posterior.mean)
    print(f"\nafter {stream.t} steps: {hares:.2f} hares and {foxes:.2f} foxes per trap")
    low, high = stream.forecast(8, levels=(0.05, 0.95)).quantiles
    for step in range(0, 8, 2):
        came = xs[50 + step]
        print(
            f"  {step + 1} ahead: hares in {low[step, 0]:.2f} to {high[step, 0]:.2f} of the traps"
            f" (came {came[0]:.2f}), foxes in {low[step, 1]:.2f} to {high[step, 1]:.2f}"
            f" (came {came[1]:.2f})"
        )


if __name__ == "__main__":
    main()
