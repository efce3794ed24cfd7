"""Strict types and shapes for every test.

There is no compilation cache: writing one aborts the process now and then in jaxlib 0.10.
"""

import jax
from jaxtyping import install_import_hook

install_import_hook("varfilter", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
