"""Fixtures that many tests share: one served pipeline, started once."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.serving import Served, serving

# How long one example takes says more about the machine's other work than about ours.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Served]:
    with serving() as server:
        yield server


@pytest.fixture
def server(shared_server: Served) -> Served:
    """The served default pipeline, ready and idle whatever the test before has done to it."""
    shared_server.wait_ready()
    shared_server.wait_idle()
    return shared_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What looks at the record of the whole run, or ends what others share, comes last."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
