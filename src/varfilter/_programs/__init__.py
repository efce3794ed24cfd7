"""Traced programs that a later start finds again, so that it neither traces nor lowers them.

JAX keeps compiled programs by what they compute, which it knows only after a function has been
traced and lowered: of a second start, most of the time. `kept_jit` keeps what was lowered by what
it was traced from: the code, the settings and the shapes.
"""

from varfilter._programs.store import kept_jit, kept_shapes

__all__ = ["kept_jit", "kept_shapes"]
