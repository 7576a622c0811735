"""One warm pipeline for all plays, on one event loop, and gone after them: it takes 4 GB."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.play import Theatre, theatre


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stage() -> AsyncIterator[Theatre]:
    async with theatre() as warm:
        yield warm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "conversations/plays" in str(item.path):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
