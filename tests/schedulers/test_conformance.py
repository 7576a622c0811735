"""One suite for every kind of scheduler, and for a fourth that is written here: a new kind needs no change elsewhere.

ArScheduler stands under the same laws on a real engine: tests/sglang_backend/own_process/check_conformance.py.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.schedulers.test_code2wav import open_reply, random_codes
from tests.schedulers.test_simple import open_echo, upper
from tests.support import conformance
from tests.support.conformance import AnyScheduler, Kind, Script, scripts
from tests.support.held import container_sizes
from tests.support.tiny_vocoder import TinyVocoder
from voice_runtime.schedulers.base import Scheduler
from voice_runtime.schedulers.code2wav import Code2WavScheduler, Code2WavSettings
from voice_runtime.schedulers.gate import BatchGate
from voice_runtime.schedulers.inbox import Inbox
from voice_runtime.schedulers.loop import Loop
from voice_runtime.schedulers.messages import (
    Abort,
    Aborted,
    Ended,
    Failed,
    Finished,
    Inquire,
    Ledger,
    NewRequest,
    Reject,
    StreamChunk,
    StreamDone,
)
from voice_runtime.schedulers.outbox import Outbox
from voice_runtime.schedulers.simple import OneShot, SimpleScheduler, Streamed


class SumScheduler:
    """A fourth kind: adds up the numbers of a request."""

    def __init__(self) -> None:
        self.inbox: Inbox[int] = Inbox()
        self.outbox: Outbox[int] = Outbox()
        self._sums: dict[str, int] = {}
        self._loop = Loop("sum-scheduler", (self.inbox, self.outbox), self._step, self._end)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def abort(self, request_id: str) -> None:
        self.inbox.abort(request_id)

    def _step(self) -> None:
        if (taken := self.inbox.take()) is None:
            return
        match taken[0]:
            case NewRequest(request_id, -1):
                self._end(Failed(request_id, "-1 is no number to begin with"))
            case Reject(request_id, error):
                self._end(Failed(request_id, error))
            case NewRequest(request_id, payload):
                self._sums[request_id] = payload
            case StreamChunk(request_id, item):
                self._sums[request_id] += item
            case StreamDone(request_id):
                self._end(Finished(request_id, self._sums[request_id]))
            case Abort(request_id):
                self._end(Aborted(request_id))
            case Inquire(request_id):
                self.outbox.put(Ledger(request_id, {**self.inbox.held(), "sums": len(self._sums)}))

    def _end(self, ended: Ended[int]) -> None:
        self._sums.pop(ended.request_id, None)
        self.inbox.settle(ended.request_id)
        self.outbox.put(ended)


def upper_all(payloads: Sequence[str]) -> list[str | Exception]:
    return [ValueError("told to fail") if payload == "fail" else payload.upper() for payload in payloads]


def batched() -> AnyScheduler:
    return SimpleScheduler(OneShot(upper, upper_all, BatchGate(3, 0.001), building=lambda: 1))


KINDS = [
    Kind("one-shot", lambda: SimpleScheduler(OneShot(upper)), str, str, streamed=False, broken="fail"),
    Kind("batched", batched, str, str, streamed=False, broken="fail"),
    Kind("streamed", lambda: SimpleScheduler(Streamed(open_echo)), str, str, streamed=True, broken="fail at open"),
    Kind(
        "code2wav",
        lambda: Code2WavScheduler(TinyVocoder(), open_reply, Code2WavSettings(slots=6)),
        str,
        lambda number: random_codes(number, number % 6),
        streamed=True,
        broken="fail",
    ),
    Kind("sum", SumScheduler, int, int, streamed=True, broken=-1),
]
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="module")
def scheduler(kind: Kind) -> Iterator[AnyScheduler]:
    scheduler: Scheduler[Any, Any] = kind.build()
    scheduler.start()
    yield scheduler
    scheduler.stop()


@pytest.fixture
def prefix() -> str:
    return f"p{next(_numbers)}"


def idle(scheduler: AnyScheduler) -> dict[str, int]:
    return conformance.Heard(scheduler).ledger()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_every_request_ends_exactly_once_and_nothing_is_left(
    kind: Kind, scheduler: AnyScheduler, script: Script
) -> None:
    conformance.every_request_ends_exactly_once_and_nothing_is_left(
        kind, scheduler, script, f"p{next(_numbers)}", dict.fromkeys(idle(scheduler), 0)
    )


@pytest.mark.parametrize(
    "law",
    [
        conformance.a_whole_request_finishes,
        conformance.a_request_that_fails_leaves_its_neighbour_alone,
        conformance.an_id_that_begins_another_is_its_own_request,
        conformance.an_abort_of_the_unknown_the_ended_and_the_aborted_does_nothing,
        conformance.a_stage_serves_it_without_asking_its_kind,
    ],
    ids=lambda law: law.__name__,
)
def test_law(kind: Kind, scheduler: AnyScheduler, prefix: str, law: Any) -> None:
    law(kind, scheduler, prefix)


def test_aborts_race_with_ends(kind: Kind, scheduler: AnyScheduler, prefix: str) -> None:
    before = idle(scheduler)
    ends = conformance.aborts_from_many_threads_race_with_the_ends(kind, scheduler, prefix, 300)
    assert idle(scheduler) == before
    assert min(ends["Aborted"], ends["Finished"]) >= 15, f"{ends}: there was no race"


def _abort_many(kind: Kind, scheduler: AnyScheduler, prefix: str, count: int) -> None:
    """Expected, begun, fed or closed requests, each aborted; every one ends."""
    heard = conformance.Heard(scheduler)
    for number in range(count):
        request_id = f"{prefix}-{number}"
        if number % 5 == 0:
            scheduler.inbox.expect(request_id)
        else:
            scheduler.inbox.put(NewRequest(request_id, kind.payload(number)))
        if kind.streamed:
            scheduler.inbox.put(StreamChunk(request_id, kind.item(number)))
        scheduler.abort(request_id)
        if number % 100 == 99:
            heard.until_ended([f"{prefix}-{ended}" for ended in range(number - 99, number + 1)])
            heard.ends.clear()
            heard.chunks.clear()
    assert set(heard.ledger().values()) == {0}


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_no_number_of_aborts_leaves_a_container_larger(
    kind: Kind, scheduler: AnyScheduler, prefix: str, count: int
) -> None:
    _abort_many(kind, scheduler, f"{prefix}-first", 100)
    before = container_sizes(scheduler)
    _abort_many(kind, scheduler, f"{prefix}-many", count)
    assert container_sizes(scheduler) == before


def test_stop_ends_what_is_live_and_nothing_begins_after_it(kind: Kind, prefix: str) -> None:
    scheduler = kind.build()
    scheduler.start()
    conformance.stop_ends_what_is_live_and_nothing_begins_after_it(kind, scheduler, prefix)


def test_stop_before_start_ends_what_was_put(kind: Kind, prefix: str) -> None:
    conformance.stop_ends_what_is_live_and_nothing_begins_after_it(kind, kind.build(), prefix)
