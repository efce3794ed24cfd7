"""Where steps are computed: in the thread that asks, unless the script was started with `--async`.

JAX reads it when it computes for the first time, which importing models and keys does. So this is
imported before them.
"""

import sys

import jax

IS_ASYNC = "--async" in sys.argv
jax.config.update("jax_cpu_enable_async_dispatch", IS_ASYNC)
