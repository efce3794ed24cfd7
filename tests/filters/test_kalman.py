"""The Kalman filter against the dense joint Gaussian of the whole sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from worlds import KEY, linear_gaussian, linear_gaussian_parameters, observations, with_gaps

# Products of a dozen matrices with condition numbers near 10, in float64: 1e-10 leaves three
# digits for them and would show any error of the mathematics.
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


class Joint:
    """Every z_t and x_t of a sequence as one Gaussian vector, built from the definition.

    z_t = A z_{t-1} + b + w_t and x_t = C z_t + d + v_t are linear in the independent
    u = (z_1, w_2, ..., w_T, v_1, ..., v_T), so that mean and covariance follow at once.
    """

    def __init__(self, parameters: dict, num_steps: int):
        p = parameters
        self.latent, self.size = p["transition"].shape[0], p["loading"].shape[0]
        self.num_latents = num_steps * self.latent
        total = num_steps * (self.latent + self.size)
        source = np.zeros((total, total))
        mean = np.zeros(total)
        noise = np.zeros((total, total))
        for t in range(num_steps):
            z, x = self.z(t), self.x(t)
            source[z, z] = np.eye(self.latent)
            noise[z, z] = p["initial_covariance"] if t == 0 else p["process_covariance"]
            mean[z] = p["initial_mean"] if t == 0 else p["transition_bias"]
            if t > 0:
                source[z] += p["transition"] @ source[self.z(t - 1)]
                mean[z] += p["transition"] @ mean[self.z(t - 1)]
            source[x] = p["loading"] @ source[z]
            source[x, x] += np.eye(self.size)
            noise[x, x] = p["noise_covariance"]
            mean[x] = p["loading"] @ mean[z] + p["loading_bias"]
        self.mean, self.covariance = mean, source @ noise @ source.T

    def z(self, t: int) -> slice:
        return slice(t * self.latent, (t + 1) * self.latent)

    def x(self, t: int) -> slice:
        start = self.num_latents + t * self.size
        return slice(start, start + self.size)

    def seen(self, xs: np.ndarray, num_steps: int) -> np.ndarray:
        """Indices of the observed elements of the first `num_steps` steps."""
        flat = np.flatnonzero(~np.isnan(xs[:num_steps].ravel()))
        return self.num_latents + flat

    def evidence(self, xs: np.ndarray, num_steps: int) -> float:
        """log p(x_1, ..., x_num_steps), observed elements only."""
        index = self.seen(xs, num_steps)
        residual = xs[:num_steps][~np.isnan(xs[:num_steps])] - self.mean[index]
        covariance = self.covariance[np.ix_(index, index)]
        _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
        return -0.5 * (log_det + residual @ np.linalg.solve(covariance, residual))

    def given(self, target: slice, xs: np.ndarray, num_steps: int):
        """Mean and covariance of `target` given the observed elements of the first steps."""
        index = self.seen(xs, num_steps)
        residual = xs[:num_steps][~np.isnan(xs[:num_steps])] - self.mean[index]
        cross = self.covariance[target, index]
        gain = np.linalg.solve(self.covariance[np.ix_(index, index)], cross.T).T
        return self.mean[target] + gain @ residual, self.covariance[target, target] - gain @ cross.T


def moments(belief: vf.Gaussian) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the beliefs of all steps."""
    covariance = jax.jit(jax.vmap(lambda d: d.covariance))(belief)
    return np.asarray(belief.mean, float), np.asarray(covariance, float)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize(("latent", "size"), [(3, 2), (2, 4), (1, 1)])
def test_kalman_is_the_dense_joint(latent, size, gaps):
    """Full Q and R, biases at both ends, a loading that is tall or wide."""
    num_steps = 9
    with jax.enable_x64(True):
        model = linear_gaussian(latent, size)
        xs = observations(model, num_steps)
        xs = with_gaps(xs) if gaps else xs
        assert xs.dtype == np.float64
        _, filtered = vf.run(vf.KalmanFilter(), model, xs, KEY)
        beliefs = [moments(b) for b in (filtered.prior, filtered.posterior, filtered.prediction)]
    joint = Joint(linear_gaussian_parameters(latent, size), num_steps)
    evidence = [joint.evidence(xs, t + 1) for t in range(num_steps)]
    np.testing.assert_allclose(np.cumsum(np.asarray(filtered.bound)), evidence, **TIGHT)
    for t in range(num_steps):
        targets = [(joint.z(t), t), (joint.z(t), t + 1), (joint.x(t), t)]
        for (means, covariances), (target, known) in zip(beliefs, targets, strict=True):
            mean, covariance = joint.given(target, xs, known)
            np.testing.assert_allclose(means[t], mean, **TIGHT)
            np.testing.assert_allclose(covariances[t], covariance, **TIGHT)


def test_a_sequence_that_is_missing_altogether_is_pure_prediction():
    with jax.enable_x64(True):
        model = linear_gaussian()
        _, filtered = vf.run(vf.KalmanFilter(), model, np.full((6, 2), np.nan), KEY)
        means, covariances = moments(filtered.posterior)
    np.testing.assert_array_equal(filtered.bound, 0.0)
    joint = Joint(linear_gaussian_parameters(), 6)
    for t in range(6):
        z = joint.z(t)
        np.testing.assert_allclose(means[t], joint.mean[z], **TIGHT)
        np.testing.assert_allclose(covariances[t], joint.covariance[z, z], **TIGHT)


def test_evidence_has_the_gradient_of_the_dense_evidence():
    """What `EndToEnd` learns a linear-Gaussian model from, by central differences."""
    parameters, names = linear_gaussian_parameters(), ["transition", "loading", "transition_bias"]
    with jax.enable_x64(True):
        xs = with_gaps(observations(linear_gaussian(), 7))

        def evidence(changed: dict) -> jax.Array:
            model = vf.LinearGaussian(**{**parameters, **changed})
            return jnp.sum(vf.run(vf.KalmanFilter(), model, xs, KEY)[1].bound)

        gradient = jax.jit(jax.grad(evidence))(
            {name: jnp.asarray(parameters[name]) for name in names}
        )
    random = np.random.default_rng(1)
    for name in names:
        direction = random.normal(size=parameters[name].shape)
        shifted = [
            Joint({**parameters, name: parameters[name] + h * direction}, 7).evidence(xs, 7)
            for h in (-1e-5, 1e-5)
        ]
        # Central differences: h^2 = 1e-10 of curvature, 1e-13 / h = 1e-8 of rounding.
        slope = np.sum(np.asarray(gradient[name]) * direction)
        np.testing.assert_allclose(slope, np.diff(shifted)[0] / 2e-5, rtol=1e-6)


def test_float32_stays_with_float64_for_two_thousand_steps():
    """P_1 / R = 10^8: a covariance in float32 would keep no digit of the first posterior."""
    num_steps = 2000
    random = np.random.default_rng(2)
    turn = np.array([[np.cos(0.02), np.sin(0.02)], [-np.sin(0.02), np.cos(0.02)]])
    parameters = {
        "transition": np.block([[turn, 0.01 * np.eye(2)], [np.zeros((2, 2)), 0.999 * np.eye(2)]]),
        "process_covariance": np.diag([1e-6, 1e-6, 1e-4, 1e-4]),
        "loading": np.eye(2, 4),
        "noise_covariance": np.diag([1e-4, 1e-4]),
        "initial_covariance": 1e4 * np.eye(4),
    }
    xs = 3.0 + np.cumsum(0.01 * random.normal(size=(num_steps, 2)), axis=0)
    xs[random.random(xs.shape) < 0.2] = np.nan
    results = []
    for precise in (False, True):
        with jax.enable_x64(precise):
            _, filtered = vf.run(vf.KalmanFilter(), vf.LinearGaussian(**parameters), xs, KEY)
            mean, covariance = moments(filtered.posterior)
            spread = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
            results.append((mean, spread, np.asarray(filtered.bound, float)))
    (mean, spread, bound), (exact_mean, exact_spread, exact_bound) = results
    # Its root has a condition of 10^4, so the first posterior is right to 10^4 roundings of
    # 1.2e-7, and the filter forgets that. A mean near 3 is rounded by 2e-7 at each step, against
    # spreads of 2e-3 and more.
    assert np.all(np.abs(mean - exact_mean) < 1e-2 * exact_spread)
    np.testing.assert_allclose(spread, exact_spread, rtol=5e-3)
    np.testing.assert_allclose(spread[100:], exact_spread[100:], rtol=1e-4)
    np.testing.assert_allclose(bound.sum(), exact_bound.sum(), rtol=2e-5)
