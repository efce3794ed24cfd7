"""Checkpoints of earlier versions, whose arrays had other names, load to the same numbers."""

import jax
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file

from varfilter import _saved
from varfilter.filters import VariationalFilter
from varfilter.inference import Prior
from varfilter.learning import TimeParallel
from varfilter.models import SRNN, SVG, VRNN
from varfilter.nn import VGG
from varfilter.training.checkpoints import (
    CHECKPOINT,
    RENAMED_PARTS,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from worlds import KEY, assert_same_bits

MODELS = {
    "SRNN": lambda: SRNN(3, 2, recurrent_size=2, prior_size=2, decoder_size=2, key=KEY),
    "VRNN": lambda: VRNN(3, 2, **dict.fromkeys(VRNN_SIZES, 2), num_layers=1, key=KEY),
    "SVG": lambda: SVG(1, 2, coder=VGG(((2,),)), code_size=2, recurrent_size=2, key=KEY),
}
VRNN_SIZES = (
    "recurrent_size",
    "data_feature_size",
    "latent_feature_size",
    "prior_size",
    "decoder_size",
)


def begun(name):
    """A learner's state, its optimizers' too, of a small model."""
    adam = optax.adam(1e-3)
    return TimeParallel(theta=adam, phi=adam).init(MODELS[name](), VariationalFilter(Prior()))


def write_with_old_names(path, state):
    """A checkpoint as the versions before the heads were shared wrote it."""
    save_checkpoint(path, Checkpoint(state, 7, {"a": 1}))
    header, arrays = _saved.read(path, CHECKPOINT)
    for then, now in RENAMED_PARTS:
        arrays = {array.replace(now, then): value for array, value in arrays.items()}
    _saved.write(path, CHECKPOINT, arrays, header)
    return arrays


@pytest.mark.parametrize("name", MODELS)
def test_old_names_load_to_the_bit(tmp_path, name):
    state = begun(name)
    # Numbers that differ from those of a fresh state, each array's own.
    rng = np.random.default_rng(0)
    leaves, tree = jax.tree.flatten(state)
    drawn = [jax.numpy.asarray(rng.normal(size=x.shape), x.dtype) for x in leaves]
    state = tree.unflatten(drawn)
    arrays = write_with_old_names(tmp_path / "old", state)
    assert ".model.prior_mean.weight" in arrays
    assert ".theta_state[0].mu.prior_log_var.bias" in arrays
    assert not any("prior_head" in array for array in load_file(tmp_path / "old"))

    found = load_checkpoint(tmp_path / "old", begun(name))
    assert (found.step, found.manifest) == (7, {"a": 1})
    assert_same_bits(found.state, state)
