"""The laws that every scheduler keeps, whatever its kind. None of them looks at more than the one interface.

Who runs them brings a `Kind`: how to build a scheduler, and payloads and items that it takes.
"""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from voice_runtime.errors import QueueFullError
from voice_runtime.schedulers.base import Scheduler
from voice_runtime.schedulers.messages import (
    Aborted,
    Chunk,
    Failed,
    Finished,
    Inquire,
    Ledger,
    NewRequest,
    Outbound,
    Reject,
    StreamChunk,
    StreamDone,
)
from voice_runtime.stages.base import Stage

WAIT_S = 60.0
AnyScheduler = Scheduler[Any, Any]


@dataclass(frozen=True)
class Kind:
    """build: a scheduler that has not started. payload, item: of a request, by a number.

    streamed: whether requests of `payload` take items. broken: a payload that fails its request.
    """

    name: str
    build: Callable[[], AnyScheduler]
    payload: Callable[[int], Any]
    item: Callable[[int], Any]
    streamed: bool
    broken: Any


@dataclass
class Heard:
    """What has come out of one scheduler so far."""

    scheduler: AnyScheduler

    def __post_init__(self) -> None:
        self.chunks: dict[str, int] = defaultdict(int)
        self.ends: dict[str, Outbound[Any]] = {}
        self._ledgers = 0

    def take(self) -> Outbound[Any]:
        message = self.scheduler.outbox.take(WAIT_S)
        assert message is not None, "nothing came"
        if isinstance(message, Ledger):
            return message
        assert message.request_id not in self.ends, f"{message} came after {self.ends[message.request_id]}"
        if isinstance(message, Chunk):
            self.chunks[message.request_id] += 1
        else:
            self.ends[message.request_id] = message
        return message

    def until_ended(self, request_ids: Sequence[str]) -> None:
        while any(request_id not in self.ends for request_id in request_ids):
            self.take()

    def ledger(self) -> dict[str, int]:
        """What is held by now."""
        self._ledgers += 1
        self.scheduler.inbox.put(Inquire(f"ledger{self._ledgers}"))
        while not isinstance(message := self.take(), Ledger):
            pass
        return dict(message.held)


Script = list[tuple[str, int]]
# Requests 0 to 5, each with its own moments of being expected, begun, fed, closed and aborted.
scripts: st.SearchStrategy[Script] = st.lists(
    st.tuples(
        st.sampled_from(["expect", "new", "chunk", "chunk", "done", "abort", "reject", "broken", "look"]),
        st.integers(0, 5),
    ),
    max_size=40,
)


class Player:
    """Plays a script on a running scheduler. No id is used twice: `prefix` tells this script's from another's."""

    def __init__(self, kind: Kind, scheduler: AnyScheduler, prefix: str) -> None:
        self._kind = kind
        self._scheduler = scheduler
        self._prefix = prefix
        self._expected: set[str] = set()
        self.heard = Heard(scheduler)
        self.begun: list[str] = []

    def play(self, script: Script) -> None:
        for number, (act, which) in enumerate(script):
            request_id = f"{self._prefix}-{which}"
            match act:
                case "expect" if request_id not in self.begun:
                    self._scheduler.inbox.expect(request_id)
                    self._expected.add(request_id)
                    self.begun.append(request_id)
                case "new" | "broken":
                    self._new(request_id, self._kind.payload(number) if act == "new" else self._kind.broken)
                case "chunk" if self._kind.streamed:
                    self._scheduler.inbox.put(StreamChunk(request_id, self._kind.item(number)))
                case "done" if self._kind.streamed:
                    self._scheduler.inbox.put(StreamDone(request_id))
                case "abort":
                    self._scheduler.abort(request_id)
                case "reject":
                    self._scheduler.inbox.fulfil(Reject(request_id, "no payload"))
                case "look":
                    self.heard.ledger()

    def _new(self, request_id: str, payload: Any) -> None:
        if request_id in self._expected:
            self._scheduler.inbox.fulfil(NewRequest(request_id, payload))
        elif request_id not in self.begun:
            self._scheduler.inbox.put(NewRequest(request_id, payload))
            self.begun.append(request_id)

    def end(self) -> None:
        """Abort whatever goes on and wait for every end."""
        for request_id in self.begun:
            self._scheduler.abort(request_id)
        self.heard.until_ended(self.begun)


def every_request_ends_exactly_once_and_nothing_is_left(
    kind: Kind, scheduler: AnyScheduler, script: Script, prefix: str, idle: dict[str, int]
) -> None:
    """idle: the ledger of a scheduler without requests."""
    player = Player(kind, scheduler, prefix)
    player.play(script)
    player.end()
    assert player.heard.ledger() == idle
    assert set(player.heard.ends) == set(player.begun)
    assert len(scheduler.outbox) == 0


def a_whole_request_finishes(kind: Kind, scheduler: AnyScheduler, prefix: str) -> None:
    heard = Heard(scheduler)
    scheduler.inbox.put(NewRequest(prefix, kind.payload(1)))
    if kind.streamed:
        for number in range(3):
            scheduler.inbox.put(StreamChunk(prefix, kind.item(number)))
        scheduler.inbox.put(StreamDone(prefix))
    heard.until_ended([prefix])
    end = heard.ends[prefix]
    assert isinstance(end, Finished), end
    assert heard.chunks[prefix] > 0 or end.result is not None


def a_request_that_fails_leaves_its_neighbour_alone(kind: Kind, scheduler: AnyScheduler, prefix: str) -> None:
    heard = Heard(scheduler)
    good, bad = f"{prefix}-good", f"{prefix}-bad"
    scheduler.inbox.put(NewRequest(good, kind.payload(1)))
    scheduler.inbox.put(NewRequest(bad, kind.broken))
    if kind.streamed:
        scheduler.inbox.put(StreamChunk(good, kind.item(1)))
        scheduler.inbox.put(StreamDone(good))
    heard.until_ended([good, bad])
    assert isinstance(heard.ends[good], Finished)
    assert isinstance(heard.ends[bad], Failed)


def an_id_that_begins_another_is_its_own_request(kind: Kind, scheduler: AnyScheduler, prefix: str) -> None:
    heard = Heard(scheduler)
    short, long = f"{prefix}-1", f"{prefix}-10"
    for request_id in (short, long):
        scheduler.inbox.put(NewRequest(request_id, kind.payload(1)))
    scheduler.abort(short)
    if kind.streamed:
        scheduler.inbox.put(StreamChunk(long, kind.item(1)))
        scheduler.inbox.put(StreamDone(long))
    heard.until_ended([short, long])
    assert isinstance(heard.ends[long], Finished)


def an_abort_of_the_unknown_the_ended_and_the_aborted_does_nothing(
    kind: Kind, scheduler: AnyScheduler, prefix: str
) -> None:
    heard = Heard(scheduler)
    scheduler.abort(f"{prefix}-unknown")
    scheduler.inbox.expect(prefix)
    for _ in range(3):
        scheduler.abort(prefix)
    heard.until_ended([prefix])
    scheduler.abort(prefix)
    assert isinstance(heard.ends[prefix], Aborted)
    assert heard.ledger()["live_requests"] == 0


def aborts_from_many_threads_race_with_the_ends(
    kind: Kind, scheduler: AnyScheduler, prefix: str, count: int
) -> dict[str, int]:
    """`count` requests that run to their end while other threads abort each at some moment of its life.

    Returns how many ended in which way: a race has more than one outcome.
    """
    life_s = _whole_life_s(kind, scheduler, f"{prefix}-solo")
    heard = Heard(scheduler)
    live = threading.Semaphore(4)
    request_ids = [f"{prefix}-{number}" for number in range(count)]

    def ask(ids: list[str], seed: int) -> None:
        chance = random.Random(seed)
        for number, request_id in enumerate(ids):
            live.acquire()
            _put_whole(kind, scheduler, request_id, number)
            until_s = time.perf_counter() + max(0.0, chance.uniform(-life_s, 2 * life_s))
            while time.perf_counter() < until_s:
                time.sleep(0)  # let the scheduler's thread run
            scheduler.abort(request_id)

    threads = [threading.Thread(target=ask, args=(request_ids[at::2], at)) for at in range(2)]
    for thread in threads:
        thread.start()
    while len(heard.ends) < count:
        if not isinstance(heard.take(), Chunk):
            live.release()
    for thread in threads:
        thread.join()
    return Counter(type(end).__name__ for end in heard.ends.values())


def _whole_life_s(kind: Kind, scheduler: AnyScheduler, prefix: str) -> float:
    """How long a request takes that nobody aborts, about."""
    heard, since_s = Heard(scheduler), time.monotonic()
    for number in range(5):
        _put_whole(kind, scheduler, f"{prefix}-{number}", number)
        heard.until_ended([f"{prefix}-{number}"])
    return (time.monotonic() - since_s) / 5


def _put_whole(kind: Kind, scheduler: AnyScheduler, request_id: str, number: int) -> None:
    scheduler.inbox.put(NewRequest(request_id, kind.payload(number)))
    if kind.streamed:
        scheduler.inbox.put(StreamChunk(request_id, kind.item(number)))
        scheduler.inbox.put(StreamDone(request_id))


def a_stage_serves_it_without_asking_its_kind(kind: Kind, scheduler: AnyScheduler, prefix: str) -> None:
    """Through a stage with preparation: items come before the payload is made, one payload cannot be made."""
    made = threading.Event()

    def prepare(number: int) -> Any:
        made.wait(WAIT_S)
        if number < 0:
            raise ValueError("told to fail")
        return kind.payload(number)

    stage = Stage(scheduler, prepare=prepare)
    heard = Heard(scheduler)
    for request_id, number in ((f"{prefix}-a", 1), (f"{prefix}-b", -1), (f"{prefix}-c", 2)):
        stage.receive(NewRequest(request_id, number))  # type: ignore[arg-type]
        if kind.streamed:
            stage.receive(StreamChunk(request_id, kind.item(1)))
            stage.receive(StreamDone(request_id))
    assert stage.building() == 3
    scheduler.abort(f"{prefix}-c")
    heard.until_ended([f"{prefix}-c"])
    assert list(heard.ends) == [f"{prefix}-c"], "the abort waited for the payload"
    made.set()
    heard.until_ended([f"{prefix}-a", f"{prefix}-b"])
    assert isinstance(heard.ends[f"{prefix}-a"], Finished)
    assert heard.ends[f"{prefix}-b"] == Failed(f"{prefix}-b", "ValueError: told to fail")
    assert isinstance(heard.ends[f"{prefix}-c"], Aborted)
    stage._preparer.shutdown()
    assert stage.building() == 0


def stop_ends_what_is_live_and_nothing_begins_after_it(kind: Kind, scheduler: AnyScheduler, prefix: str) -> None:
    heard = Heard(scheduler)
    request_ids = [f"{prefix}-{number}" for number in range(3)]
    for number, request_id in enumerate(request_ids[:2]):
        scheduler.inbox.put(NewRequest(request_id, kind.payload(number)))
    scheduler.inbox.expect(request_ids[2])
    scheduler.stop()
    while (message := scheduler.outbox.take(WAIT_S)) is not None:
        if not isinstance(message, Chunk | Ledger):
            assert message.request_id not in heard.ends
            heard.ends[message.request_id] = message
    assert set(heard.ends) == set(request_ids)
    assert all(isinstance(end, Aborted | Finished) for end in heard.ends.values())
    try:
        scheduler.inbox.put(NewRequest(f"{prefix}-late", kind.payload(1)))
    except QueueFullError:
        return
    raise AssertionError("a request was taken after stop, expected QueueFullError")
