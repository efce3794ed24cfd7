"""varfilter: learn deep state-space models from sequences, and filter with them online."""

from varfilter._lazy import lazy_exports

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_exports(__name__)
