"""A saved stream goes on bit for bit in another process, and a wrong or broken file is refused."""

import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import varfilter as vf
from refusals import refuses
from varfilter import Stream
from worlds import KEY, assert_same_bits, deep_markov, linear_gaussian, observations, with_gaps

pytestmark = pytest.mark.usefixtures("as_users_run_it")

MODEL = deep_markov()
XS = with_gaps(observations(MODEL, 12))


def avf(model=MODEL, **options):
    inference = vf.Iterative(model, hidden_size=8, num_iterations=2, key=jax.random.key(5))
    return vf.VariationalFilter(inference, **options)


def proposing():
    """Particles with a learned proposal: every kind of state and randomness in one filter."""
    return vf.ParticleFilter(avf().inference, 8)


@pytest.fixture(scope="module")
def stream():
    """One compiled stream, which each test takes back to its beginning."""
    return Stream(avf(), MODEL, KEY)


@pytest.fixture
def fresh(stream):
    stream.belief = vf.start(stream.filter, stream.model)
    return stream


def push_all(stream, xs):
    return [stream.push(x) for x in xs]


RESUME = """
import sys
import numpy as np
sys.path.insert(0, {tests!r})
import jax
jax.config.update("jax_numpy_dtype_promotion", "strict")
import varfilter as vf
from test_saved_stream import MODEL, XS, proposing
stream = vf.Stream.restore(sys.argv[1], proposing(), MODEL)
bounds = [stream.push(x).bound for x in XS[stream.t:]]
leaves = jax.tree.leaves((bounds, stream.belief, stream.forecast(2, num_samples=4)))
np.savez(sys.argv[2], *map(np.asarray, leaves))
"""


class TestSaved:
    def test_a_new_process_continues_bit_for_bit(self, tmp_path):
        stream = Stream(proposing(), MODEL, KEY)
        push_all(stream, XS[:5])
        stream.save(tmp_path / "saved")
        bounds = [filtered.bound for filtered in push_all(stream, XS[5:])]
        uninterrupted = (bounds, stream.belief, stream.forecast(2, num_samples=4))

        script = RESUME.format(tests=str(Path(__file__).parent))
        saved, result = str(tmp_path / "saved"), str(tmp_path / "result.npz")
        subprocess.run([sys.executable, "-c", script, saved, result], check=True, timeout=300)
        with np.load(result) as resumed:
            assert_same_bits(list(resumed.values()), jax.tree.leaves(uninterrupted))

    def test_the_file_holds_the_belief_and_the_key_alone(self, fresh, tmp_path):
        push_all(fresh, XS[:3])
        fresh.save(tmp_path / "s")
        arrays = load_file(tmp_path / "s")
        assert_same_bits(arrays.pop("key"), jax.random.key_data(KEY))
        leaves = jax.tree_util.tree_leaves_with_path(fresh.belief)
        belief = {f"belief{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}
        assert arrays.keys() == belief.keys()
        assert_same_bits(arrays, belief)  # dictionaries flatten by sorted name

    def test_saving_again_replaces(self, fresh, tmp_path):
        fresh.save(tmp_path / "s")
        push_all(fresh, XS[:2])
        fresh.save(tmp_path / "s")
        assert Stream.restore(tmp_path / "s", fresh.filter, MODEL).t == 2
        assert os.listdir(tmp_path) == ["s"]

    @pytest.mark.parametrize("broken", ["os.fsync", "os.replace"])
    def test_an_old_file_survives_a_failing_save(self, fresh, tmp_path, monkeypatch, broken):
        push_all(fresh, XS[:2])
        fresh.save(tmp_path / "s")
        content = (tmp_path / "s").read_bytes()
        fresh.push(XS[2])

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(broken, full)
        refuses(lambda: fresh.save(tmp_path / "s"), OSError, "`path`", "No space left on device")
        assert (tmp_path / "s").read_bytes() == content
        assert os.listdir(tmp_path) == ["s"]
        assert fresh.t == 3

    def test_folders_that_cannot_be_written(self, fresh, tmp_path, monkeypatch):
        words = ("`path`", "a folder that exists")
        refuses(lambda: fresh.save(tmp_path / "no" / "s"), FileNotFoundError, *words, "no/s")
        refuses(lambda: fresh.save(tmp_path), IsADirectoryError, *words)
        refuses(lambda: fresh.save(3), TypeError, "`path`", "`3`")

        def read_only(*_):  # also for a user whom permissions do not stop
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", read_only)
        refuses(lambda: fresh.save(tmp_path / "s"), PermissionError, *words, "Permission denied")
        assert os.listdir(tmp_path) == []

    def test_another_filter_or_model(self, fresh, tmp_path):
        path = tmp_path / "s"
        fresh.save(path)
        moved = eqx.tree_at(lambda m: m.initial.mean, MODEL, jnp.full(2, 1e-3))
        network = eqx.tree_at(
            lambda f: f.inference.update.offset.bias, avf(), jnp.full(4, 1e-3, jnp.float32)
        )
        larger = deep_markov(latent=3)
        others = {
            "another model": (avf(larger), larger),
            "another class": (vf.KalmanFilter(), linear_gaussian(size=4)),
            "other parameters": (avf(), moved),
            "another network": (network, MODEL),
            "another filter": (vf.ParticleFilter(vf.Prior(), 16), MODEL),
            "other settings": (avf(num_samples=2), MODEL),
        }
        for filter, model in others.values():
            words = (str(path), "another filter or model", "start a new `Stream`")
            refuses(lambda f=filter, m=model: Stream.restore(path, f, m), ValueError, *words)
        refuses(lambda: Stream.restore(path, vf.KalmanFilter(), MODEL), TypeError, "`KalmanFilter`")
        refuses(lambda: Stream.restore(path, avf(), 3), TypeError, "`model`", "`3`")

    def test_particles_of_another_number(self, tmp_path):
        def particles(*count, **options):
            return vf.ParticleFilter(vf.Prior(), *count, **options)

        Stream(particles(4), MODEL, KEY).save(tmp_path / "s")
        for other in (particles(5), particles(4, resample_below=0.9)):
            words = ("another filter or model",)
            refuses(lambda f=other: Stream.restore(tmp_path / "s", f, MODEL), ValueError, *words)

    def test_damaged_files(self, fresh, tmp_path):
        push_all(fresh, XS[:3])
        path = tmp_path / "s"
        fresh.save(path)
        whole = path.read_bytes()
        # Each place is hit: the length of the header, the header, and the numbers behind it.
        for place in range(0, len(whole), 41):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
            with pytest.raises(ValueError, match=r"damaged|not a saved|version|another filter"):
                Stream.restore(path, fresh.filter, MODEL)
        for length in (0, 7, 20, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            refuses(lambda: Stream.restore(path, fresh.filter, MODEL), ValueError, "damaged")
        path.write_bytes(whole)
        assert Stream.restore(path, fresh.filter, MODEL).t == 3

    def test_foreign_files(self, fresh, tmp_path):
        def restore(path):
            return lambda: Stream.restore(path, fresh.filter, MODEL)

        text, tensors, later = (tmp_path / name for name in ("a.txt", "b", "c"))
        text.write_text("I am not a stream, but a letter to a friend.")
        save_file({"weights": np.zeros(3)}, tensors)
        header = {"format": "varfilter-stream", "version": "99"}
        save_file({"key": np.zeros(2, np.uint32)}, later, header)
        refuses(restore(text), ValueError, "a.txt", "not a saved stream")
        refuses(restore(tensors), ValueError, "but not a saved stream")
        refuses(restore(later), ValueError, "version 99", "Update varfilter")
        refuses(restore(tmp_path / "none"), FileNotFoundError, "`path`", "none")
        refuses(restore(tmp_path), FileNotFoundError, "`path`", "no file")
        refuses(restore(3), TypeError, "`path`", "`3`")
