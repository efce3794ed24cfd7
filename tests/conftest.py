"""Strict types and shapes for every test, and one compilation cache for all of them."""

from pathlib import Path

import jax
from jaxtyping import install_import_hook

install_import_hook("varfilter", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Compiling is the main cost of these tests; what one run compiled the next one reads.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
