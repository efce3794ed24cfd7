"""What the tests of the data share: errors in our own words, and a server on this machine."""

import threading

import jaxtyping
import pytest

from servers import Server
from varfilter.data.sets import transfer


@pytest.fixture
def plain_errors():
    """Without the type checker of `tests/conftest.py`, which refuses wrong types in its words."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def server(monkeypatch):
    """A server that runs, and downloads that do not wait before they try again."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(transfer, "PAUSE", 0.0)
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()
