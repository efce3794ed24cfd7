"""Sounds for the tests: noise, sines, and SPHERE files by the letter of their description."""

import numpy as np


def noise(size, seed=0):
    """Values over all of the 16 bits, both ends among them."""
    samples = np.random.default_rng(seed).integers(-(2**15), 2**15, size).astype(np.int16)
    samples[:2] = -(2**15), 2**15 - 1
    return samples


def sine(frequency, rate, seconds=0.5, height=8000):
    times = np.arange(int(rate * seconds)) / rate
    return np.rint(height * np.sin(2 * np.pi * frequency * times)).astype(np.int16)


def peak(samples, rate):
    """The frequency of the highest line of the spectrum."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return np.argmax(spectrum) * rate / len(samples)


def write_sphere(
    path, samples, *, order="01", coding=None, rate=16000, channels=1, header=(), announced=None,
    size=1024,
):  # fmt: skip
    """A SPHERE file, by the letter of NIST's description; with a `coding`, of single bytes."""
    count = len(samples) // channels if announced is None else announced
    width = 2 if coding is None else 1
    lines = [
        "NIST_1A",
        f"{size:7}",
        "database_id -s5 TIMIT",
        f"channel_count -i {channels}",
        f"sample_count -i {count}",
        f"sample_rate -i {rate}",
        f"sample_n_bytes -i {width}",
        f"sample_byte_format -s2 {order}" if width == 2 else "sample_byte_format -s1 1",
        f"sample_sig_bits -i {8 * width}",
        *([f"sample_coding -s{len(coding)} {coding}"] if coding else []),
        *header,
        "end_head",
    ]
    text = ("\n".join(lines) + "\n").encode("latin-1").ljust(size)
    assert len(text) == size
    data = samples.astype({"01": "<i2", "10": ">i2"}[order] if width == 2 else np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text + data)
    return path


def coarse(size, seed=0):
    """All levels of 8 bits, as 16-bit values."""
    return (noise(size, seed) // 256 * 256).astype(np.int16)
