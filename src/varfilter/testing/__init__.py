"""A conformance suite to run on your own models, inferences and filters.

    from varfilter.testing import check_model

    check_model(MyModel(...), jax.random.key(0))

Each check raises a `ConformanceError` that names what failed, what was got, why it matters and
how to mend it; if all is well it returns what was checked and how closely it held.
"""

from varfilter.testing.conformance import ConformanceError, Result
from varfilter.testing.filters import check_filter
from varfilter.testing.inferences import check_inference
from varfilter.testing.models import check_model

__all__ = ["ConformanceError", "Result", "check_filter", "check_inference", "check_model"]
