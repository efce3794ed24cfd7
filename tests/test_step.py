"""Where a stream's step is computed: on the quicker device, and there by the thread that asks."""

import re
import time

import jax
import numpy as np
import pytest

import varfilter as vf
from refusals import refuses
from varfilter import _step
from worlds import KEY, deep_markov, observations

pytestmark = pytest.mark.usefixtures("as_users_run_it")
MODEL = deep_markov()
FILTER = vf.ParticleFilter(vf.Prior(), 200)


@pytest.fixture(scope="module")
def stream():
    return vf.Stream(FILTER, MODEL, KEY)


class Slow:
    """A step that takes so many seconds."""

    fixed = ()

    def __init__(self, *seconds):
        self.seconds = list(seconds)
        self.calls = 0

    def joined(self, belief):
        return belief

    def call(self, fixed, joined, x, u):
        time.sleep(self.seconds[min(self.calls, len(self.seconds) - 1)])
        self.calls += 1
        return joined


def test_the_quicker_device_is_taken():
    slow, quick = Slow(0.004), Slow(0.05, 0.0)  # to compile does not count
    assert _step.quickest([slow, quick], None, None, None) is quick
    assert _step.quickest([quick, slow], None, None, None) is quick
    only = Slow(0.0)
    assert _step.quickest([only], None, None, None) is only
    assert only.calls == 1


def test_there_is_a_choice_where_there_is_an_accelerator(monkeypatch):
    processor = jax.devices("cpu")[0]
    assert _step.contenders(FILTER, MODEL) == [None]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert _step.contenders(FILTER, MODEL) == [processor, None]
    with jax.default_device(processor):  # somebody has chosen already
        assert _step.contenders(FILTER, MODEL) == [None]
    monkeypatch.setattr(_step, "LARGEST_ON_PROCESSOR", 0)
    assert _step.contenders(FILTER, MODEL) == [None]


def test_jax_may_have_no_processor(monkeypatch):
    def none(backend):
        raise RuntimeError(f"no {backend}")

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", none)
    assert _step.contenders(FILTER, MODEL) == [None]


def test_wrong_devices():
    refuses(lambda: vf.Stream(FILTER, MODEL, KEY, device="cpu"), TypeError, "`device`", "`'cpu'`")


def test_a_step_wakes_no_other_thread(stream):
    """XLA hands out what stands outermost in a program if it is more than eight operations."""
    x = np.asarray(observations(MODEL, 1)[0])
    lowered = stream._call.lower(stream._fixed, stream._joined, x, None)
    text = lowered.compile().as_text()
    outermost = text[text.index("\nENTRY ") :].split("\n}")[0].splitlines()[2:]
    free = r" (parameter|constant|get-tuple-element|tuple|bitcast)\("
    operations = [line for line in outermost if not re.search(free, line)]
    assert 0 < len(operations) <= 8, operations
