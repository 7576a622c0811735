"""Driving an ArScheduler on a real engine: ask, collect what comes, look at the ledger."""

import itertools
from collections.abc import Sequence
from typing import Any

from tests.support.serving import kv_is_whole
from voice_runtime.schedulers.ar import ArScheduler
from voice_runtime.schedulers.messages import Chunk, Inquire, Ledger, NewRequest, Outbound

WAIT_S = 60.0
_numbers = itertools.count()

Ar = ArScheduler[Any, Any, list[Any]]
Outcome = tuple[list[Any], Outbound[list[Any]]]


def new_id() -> str:
    return f"{next(_numbers):08d}"


def begin(scheduler: Ar, payload: object) -> str:
    request_id = new_id()
    scheduler.inbox.put(NewRequest(request_id, payload))
    return request_id


def take(scheduler: Ar) -> Outbound[list[Any]]:
    message = scheduler.outbox.take(WAIT_S)
    assert message is not None, "nothing came"
    return message


def outcomes(
    scheduler: Ar, request_ids: Sequence[str], taken: Sequence[Outbound[list[Any]]] = ()
) -> dict[str, Outcome]:
    """Items and end of each request; fails when one ends twice or goes on after its end.

    taken: what has come so far.
    """
    items: dict[str, list[Any]] = {request_id: [] for request_id in request_ids}
    ends: dict[str, Outbound[list[Any]]] = {}
    came = iter(taken)
    while len(ends) < len(request_ids):
        message = next(came, None) or take(scheduler)
        assert message.request_id not in ends, f"{message} came after its end"
        if isinstance(message, Chunk):
            items[message.request_id] += message.item
        else:
            ends[message.request_id] = message
    return {request_id: (items[request_id], ends[request_id]) for request_id in request_ids}


def ledger(scheduler: Ar) -> dict[str, int]:
    """What is held once the engine has done its housekeeping."""
    held = {"generations": 1}
    while held["generations"]:
        scheduler.inbox.put(Inquire("ledger00"))
        message = take(scheduler)
        assert isinstance(message, Ledger)
        held = dict(message.held)
    return held


def assert_all_given_back(scheduler: Ar) -> None:
    held = ledger(scheduler)
    assert kv_is_whole(held), held
    assert held["live_requests"] == held["inbox_messages"] == 0
