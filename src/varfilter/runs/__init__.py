"""Runs: folders that hold a trained experiment, and what can be done with one."""

from varfilter._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
