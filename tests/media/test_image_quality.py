"""PSNR and SSIM against direct computations; the best of several futures is the best."""

import numpy as np
import pytest

from varfilter.media.image_quality import LEAST_SQUARE, frame_scores, psnr, ssim


def frames(*shape, seed=0):
    return np.random.default_rng(seed).uniform(size=shape)


def direct_ssim(one, two):
    """The formula of Wang et al., place by place, with the two-dimensional window written out."""
    side = np.arange(11) - 5.0
    window = np.exp(-(side[:, None] ** 2 + side**2) / (2 * 1.5**2))
    window /= window.sum()
    found = []
    for y in range(one.shape[0] - 10):
        for x in range(one.shape[1] - 10):
            a, b = one[y : y + 11, x : x + 11], two[y : y + 11, x : x + 11]
            m, n = np.sum(window * a), np.sum(window * b)
            v, w = np.sum(window * (a - m) ** 2), np.sum(window * (b - n) ** 2)
            s = np.sum(window * (a - m) * (b - n))
            top = (2 * m * n + 0.01**2) * (2 * s + 0.03**2)
            found.append(top / ((m**2 + n**2 + 0.01**2) * (v + w + 0.03**2)))
    return np.mean(found)


def test_ssim_is_that_of_the_direct_formula():
    one, two = frames(2, 1, 14, 17), frames(2, 1, 14, 17, seed=1)
    two = 0.6 * one + 0.4 * two
    found = ssim(one, two)
    assert found.shape == (2,)
    for i in range(2):
        assert found[i] == pytest.approx(direct_ssim(one[i, 0], two[i, 0]), rel=1e-9)


def test_the_same_frame_is_the_most_alike():
    one = frames(3, 3, 16, 16)
    np.testing.assert_allclose(ssim(one, one), 1.0, rtol=1e-12)
    np.testing.assert_allclose(psnr(one, one), -10 * np.log10(LEAST_SQUARE))
    assert (ssim(one, 1 - one) < 0).all()
    # Of colours, the mean over them; of frames smaller than the window, one place.
    two = frames(3, 3, 16, 16, seed=1)
    alone = np.stack([ssim(one[:, i : i + 1], two[:, i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(ssim(one, two), alone.mean(0))
    assert np.isfinite(ssim(one[..., :8, :8], two[..., :8, :8])).all()


def test_psnr_in_decibels():
    black = np.zeros((2, 1, 4, 4))
    white = np.array([0.1, 0.01]).reshape(2, 1, 1, 1) + black
    assert psnr(black, white) == pytest.approx([20.0, 40.0])


def test_the_best_future_is_chosen_for_each_sequence():
    rng = np.random.default_rng(0)
    sequences = []
    for which in (2, 0):
        came = rng.uniform(size=(5, 1, 12, 12))
        drawn = np.clip(came + 0.3 * rng.normal(size=(4, *came.shape)), 0, 1)
        drawn[which] = np.clip(came + 0.01, 0, 1)
        sequences.append((rng.uniform(size=came.shape[1:]), came, drawn))
    found = frame_scores(sequences)
    for name, score in (("PSNR", psnr), ("SSIM", ssim)):
        own = found[name]
        assert own.num_sequences == 2
        expected = [
            score(drawn[which], came)
            for which, (_, came, drawn) in zip((2, 0), sequences, strict=True)
        ]
        np.testing.assert_allclose(own.best, np.mean(expected, 0))
        assert (own.best > own.average).all()
        copies = [score(np.stack([last] * 5), came) for last, came, _ in sequences]
        np.testing.assert_allclose(own.copy, np.mean(copies, 0))
        assert np.isfinite(own.standard_error).all()
    # More to choose from is never worse.
    fewer = frame_scores([(last, came, drawn[1:2]) for last, came, drawn in sequences])
    assert (found["PSNR"].best > fewer["PSNR"].best).all()
