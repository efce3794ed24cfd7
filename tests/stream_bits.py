"""Prints, for each model and filter, whether a stream gives the bits of a run.

    python tests/stream_bits.py

Compiled as users compile it: fusions, which the tests leave out for time, are where a step by
itself and a step in a loop would be rounded differently. `test_stream.py` starts it with the slow
tests.
"""

import jax
import numpy as np
import optax

import varfilter as vf
import worlds

KEY = jax.random.key(3)


def avf(model: vf.AbstractModel, **options) -> vf.Iterative:
    return vf.Iterative(model, hidden_size=6, num_layers=1, key=jax.random.key(1), **options)


FILTERS = {
    "avf": lambda model: vf.VariationalFilter(avf(model)),
    "avf, K=3": lambda model: vf.VariationalFilter(avf(model, num_iterations=3)),
    "descent": lambda model: vf.VariationalFilter(
        vf.GradientDescent(optax.adam(0.1), num_iterations=5)
    ),
    "particles, avf": lambda model: vf.ParticleFilter(avf(model), 64),
    "bootstrap": lambda model: vf.ParticleFilter(vf.Prior(), 64),
}
MODELS = {
    "linear-gaussian": worlds.linear_gaussian,
    "deep-markov": worlds.deep_markov,
    "deep-markov, 50": lambda: worlds.deep_markov(50, 20),
    "srnn, 50": lambda: worlds.srnn(50, 20),
    "vrnn, 50": lambda: worlds.vrnn(50, 20),
    "continued, 50": lambda: worlds.continued(50, 20),
    "svg": worlds.svg,
}


def same_bits(filter: vf.AbstractFilter, model: vf.AbstractModel, xs: np.ndarray) -> bool:
    belief, filtered = vf.run(filter, model, xs, KEY)
    stream = vf.Stream(filter, model, KEY)
    pushed = jax.tree.map(lambda *leaves: np.stack(leaves), *[stream.push(x) for x in xs])
    try:
        worlds.assert_same_bits((pushed, stream.belief), (filtered, belief))
    except AssertionError:
        return False
    return True


if __name__ == "__main__":
    for model_name, build in MODELS.items():
        model = build()
        whole = worlds.observations(model, 10)
        for filter_name, make in FILTERS.items():
            if model_name == "svg" and filter_name not in ("avf", "particles, avf"):
                continue  # half a minute of compiling each
            for what, xs in {"complete": whole, "gaps": worlds.with_gaps(whole)}.items():
                outcome = "same bits" if same_bits(make(model), model, xs) else "OTHER BITS"
                print(f"{model_name} | {filter_name} | {what}: {outcome}", flush=True)
    model = worlds.linear_gaussian()
    whole = worlds.observations(model, 10)
    for what, xs in {"complete": whole, "gaps": worlds.with_gaps(whole)}.items():
        outcome = "same bits" if same_bits(vf.KalmanFilter(), model, xs) else "OTHER BITS"
        print(f"linear-gaussian | kalman | {what}: {outcome}", flush=True)
