"""A loop over time in which only that is looped which has to wait for the step before.

`scan_ahead` computes what `jax.lax.scan` computes. It finds by tracing what each part of the
carry depends on, and makes of one loop a chain of stages:

- what depends on the scanned inputs alone (random numbers, features of x_t, products with what is
  known) is computed for all steps at once, ahead of the loop;
- a part of the carry that does not depend on the rest of it (an LSTM that sees x alone) has a
  loop of its own; all that needs no more than its result is computed for all steps at once;
- what no later step waits for (the score of a step) is computed for all steps at once, behind.

So a model's functions are written for one step and one sequence, and yet a batch of sequences is
filtered with few small products in its loop. Where everything depends on everything, as where
missing elements are drawn and fed back, it is the plain loop.
"""

from varfilter._ahead.loop import scan_ahead

__all__ = ["scan_ahead"]
