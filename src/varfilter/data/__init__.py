"""Data: ragged sequences and their scale, from files of every kind and from sets with a name."""

from varfilter._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
