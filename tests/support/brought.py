"""What a stage brings for several replies at once."""

from collections.abc import Sequence
from typing import Any

import pytest

from voice_runtime.schedulers.messages import Chunk, Failed, Finished, Outbound
from voice_runtime.stages.base import Stage

WAIT_S = 60.0


def take(stage: Stage) -> Outbound[Any]:
    message = stage.scheduler.outbox.take(WAIT_S)
    assert message is not None
    return message


def brought(stage: Stage, request_ids: Sequence[str]) -> dict[str, list[Any]]:
    """What each reply brought, to its end; a reply that fails fails the test."""
    found: dict[str, list[Any]] = {request_id: [] for request_id in request_ids}
    waiting = set(request_ids)
    while waiting:
        match take(stage):
            case Chunk(request_id, item):
                found[request_id].append(item)
            case Finished(request_id):
                waiting.remove(request_id)
            case Failed(_, error):
                pytest.fail(error)
            case other:
                pytest.fail(str(other))
    return found
