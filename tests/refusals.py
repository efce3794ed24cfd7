"""How the tests of bad input ask: for the words that a user would read."""

import pytest


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
