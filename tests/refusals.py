"""How the tests of bad input ask: the words a user would read, without the tests' type checker."""

import jaxtyping
import pytest


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Without the type checker of `conftest.py`, which refuses wrong types in its own words."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def refuses(call, error, *words):
    """`call` raises `error` itself, in one sentence or more that hold each of the words."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    # `raises` also takes subclasses, such as jax's own errors: ours are plain.
    assert type(caught.value) is error
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"
    assert "\n" not in message
    assert message.endswith(".")
