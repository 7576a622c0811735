"""SimpleScheduler: every request ends exactly once, fails alone, and leaves nothing behind."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.errors import QueueFullError
from voice_runtime.schedulers.gate import BatchGate
from voice_runtime.schedulers.messages import (
    Aborted,
    Chunk,
    Failed,
    Finished,
    Inquire,
    Ledger,
    NewRequest,
    Outbound,
    StreamChunk,
    StreamDone,
)
from voice_runtime.schedulers.outbox import Outbox
from voice_runtime.schedulers.simple import OneShot, SimpleScheduler, Streamed

Scheduler = SimpleScheduler[str, str]
IDLE = {"inbox_messages": 0, "live_requests": 0, "waiting_requests": 0, "open_streams": 0}


@dataclass
class Echo:
    """Gives back each item; "fail" fails, and "end" is the last that is wanted."""

    opening: str
    ended: bool = False

    def push(self, item: str) -> Iterator[str]:
        yield item
        if item == "fail":
            raise ValueError("the item is fail")
        self.ended = item == "end"

    def close(self) -> Iterable[str]:
        if self.opening == "fail at close":
            raise ValueError("told to fail at close")
        return ["closed"]


def open_echo(opening: str) -> Echo:
    if opening == "fail at open":
        raise ValueError("told to fail at open")
    return Echo(opening)


def upper(payload: str) -> str:
    if payload == "fail":
        raise ValueError("the payload is fail")
    return payload.upper()


def streamed() -> Scheduler:
    return SimpleScheduler(Streamed(open_echo))


def batched(run: Callable[[Sequence[str]], Iterable[str | Exception]], target: int = 8) -> Scheduler:
    return SimpleScheduler(OneShot(upper, run, BatchGate(target)))


def outputs(scheduler: Scheduler) -> list[Outbound[str]]:
    """What has come out since the last call, without metrics."""
    messages: list[Outbound[str]] = []
    while (message := scheduler.outbox.take(timeout_s=0)) is not None:
        plain = Finished(message.request_id, message.result) if isinstance(message, Finished) else message
        messages.append(plain)
    return messages


def ends_metrics(scheduler: Scheduler) -> dict[str, Mapping[str, float]]:
    """What has finished since the last call, and its metrics."""
    came = [scheduler.outbox.take(0) for _ in range(len(scheduler.outbox))]
    return {message.request_id: message.metrics for message in came if isinstance(message, Finished)}


def run(scheduler: Scheduler, *messages: NewRequest[str] | StreamChunk[str] | StreamDone) -> list[Outbound[str]]:
    """Put everything, do one round, and give what came out."""
    for message in messages:
        scheduler.inbox.put(message)
    scheduler.step()
    return outputs(scheduler)


def ledger(scheduler: Scheduler) -> dict[str, int]:
    scheduler.inbox.put(Inquire("look"))
    scheduler.step()
    (answer,) = [message for message in outputs(scheduler) if isinstance(message, Ledger)]
    return dict(answer.held)


# One-shot


def test_what_was_computed_in_a_batch_tells_its_size_and_what_was_alone_does_not() -> None:
    scheduler = batched(lambda batch: list(batch))
    for name in "ab":
        scheduler.inbox.put(NewRequest(name, name))
    scheduler.step()
    scheduler.inbox.put(NewRequest("c", "c"))
    scheduler.step()
    assert [metrics.get("batch") for metrics in ends_metrics(scheduler).values()] == [2, 2, None]


def test_a_request_gives_the_result_of_its_payload() -> None:
    scheduler: Scheduler = SimpleScheduler(OneShot(upper))
    assert run(scheduler, NewRequest("a", "x")) == [Finished("a", "X")]
    assert ledger(scheduler) == IDLE


def test_a_request_that_fails_says_so_and_the_next_one_is_served() -> None:
    scheduler: Scheduler = SimpleScheduler(OneShot(upper))
    assert run(scheduler, NewRequest("a", "fail")) == [Failed("a", "ValueError: the payload is fail")]
    assert run(scheduler, NewRequest("b", "x")) == [Finished("b", "X")]
    assert ledger(scheduler) == IDLE


@pytest.mark.parametrize("follower", [StreamChunk("a", "y"), StreamDone("a")])
def test_an_item_or_an_end_fails_a_request_of_one_payload(follower: StreamChunk[str] | StreamDone) -> None:
    scheduler: Scheduler = SimpleScheduler(OneShot(upper))
    [end] = run(scheduler, NewRequest("a", "x"), follower)
    assert isinstance(end, Failed)
    assert "one payload" in end.error


def test_an_aborted_request_is_not_computed() -> None:
    computed: list[str] = []

    def compute(payload: str) -> str:
        computed.append(payload)
        return payload

    scheduler: Scheduler = SimpleScheduler(OneShot(compute))
    scheduler.inbox.put(NewRequest("a", "x"))
    scheduler.abort("a")
    assert run(scheduler) == [Aborted("a")]
    assert computed == []
    assert ledger(scheduler) == IDLE


def test_an_abort_while_the_request_is_computed_does_not_end_it_a_second_time() -> None:
    def compute(payload: str) -> str:
        scheduler.abort("a")
        return payload

    scheduler: Scheduler = SimpleScheduler(OneShot(compute))
    scheduler.inbox.put(NewRequest("a", "x"))
    scheduler.step()
    scheduler.inbox.put(Inquire("look"))
    scheduler.step()
    assert outputs(scheduler) == [Finished("a", "x"), Ledger("look", IDLE)]


# Batches


def test_one_item_of_a_batch_fails_alone() -> None:
    scheduler = batched(lambda batch: [ValueError(p) if p == "fail" else p.upper() for p in batch])
    assert run(scheduler, NewRequest("a", "x"), NewRequest("b", "fail"), NewRequest("c", "y")) == [
        Finished("a", "X"),
        Failed("b", "ValueError: fail"),
        Finished("c", "Y"),
    ]
    assert ledger(scheduler) == IDLE


@pytest.mark.parametrize("results", [[], ["X"], ["X", "Y", "Z"]])
def test_a_list_of_another_length_fails_the_whole_batch(results: list[str]) -> None:
    scheduler = batched(lambda batch: results)
    error = f"ValueError: batch function gave {len(results)} results for 2 requests"
    assert run(scheduler, NewRequest("a", "x"), NewRequest("b", "y")) == [Failed("a", error), Failed("b", error)]
    assert ledger(scheduler) == IDLE


def test_an_iterator_s_results_go_out_before_the_next_is_computed() -> None:
    out: list[int] = []

    def one_by_one(batch: Sequence[str]) -> Iterator[str]:
        for payload in batch:
            out.append(len(scheduler.outbox))
            yield payload.upper()

    scheduler = batched(one_by_one)
    messages = [NewRequest(name, name) for name in "abc"]
    assert run(scheduler, *messages) == [Finished(name, name.upper()) for name in "abc"]
    assert out == [0, 1, 2]


def test_an_iterator_that_raises_fails_only_those_whose_results_were_not_out() -> None:
    def breaks(batch: Sequence[str]) -> Iterator[str]:
        yield "X"
        raise ValueError("broken")

    scheduler = batched(breaks)
    assert run(scheduler, *(NewRequest(name, "") for name in "abc")) == [
        Finished("a", "X"),
        Failed("b", "ValueError: broken"),
        Failed("c", "ValueError: broken"),
    ]
    assert ledger(scheduler) == IDLE


def test_an_iterator_that_ends_early_fails_those_without_a_result() -> None:
    scheduler = batched(lambda batch: iter(["X"]))
    assert run(scheduler, NewRequest("a", ""), NewRequest("b", "")) == [
        Finished("a", "X"),
        Failed("b", "ValueError: batch function gave 1 results for 2 requests"),
    ]


def test_an_iterator_is_not_asked_for_more_results_than_there_are_requests() -> None:
    def for_ever(batch: Sequence[str]) -> Iterator[str]:
        while True:
            yield "X"

    scheduler = batched(for_ever)
    assert run(scheduler, NewRequest("a", ""), NewRequest("b", "")) == [Finished("a", "X"), Finished("b", "X")]


def test_a_batch_of_one_is_computed_as_a_single_request() -> None:
    scheduler = batched(lambda batch: ["from a batch"] * len(batch))
    assert run(scheduler, NewRequest("a", "x")) == [Finished("a", "X")]


def test_an_abort_takes_one_request_out_of_a_waiting_batch() -> None:
    scheduler = batched(lambda batch: [payload.upper() for payload in batch])
    for name in "abc":
        scheduler.inbox.put(NewRequest(name, name))
    scheduler.abort("b")
    assert run(scheduler) == [Aborted("b"), Finished("a", "A"), Finished("c", "C")]


# Streams


def test_a_stream_gives_what_each_item_and_its_end_bring() -> None:
    assert run(streamed(), NewRequest("a", ""), StreamChunk("a", "x"), StreamChunk("a", "y"), StreamDone("a")) == [
        Chunk("a", "x"),
        Chunk("a", "y"),
        Chunk("a", "closed"),
        Finished("a"),
    ]


def test_a_stream_s_results_go_out_before_the_next_is_computed() -> None:
    out: list[int] = []

    class Spelling(Echo):
        def push(self, item: str) -> Iterator[str]:
            for letter in item:
                out.append(len(scheduler.outbox))
                yield letter

    scheduler: Scheduler = SimpleScheduler(Streamed(Spelling))
    assert run(scheduler, NewRequest("a", ""), StreamChunk("a", "xyz")) == [Chunk("a", letter) for letter in "xyz"]
    assert out == [0, 1, 2]


def test_a_stream_that_wants_no_more_finishes_early_and_later_items_are_dropped() -> None:
    scheduler = streamed()
    items = [StreamChunk("a", item) for item in ("x", "end", "late")]
    expected = [Chunk("a", "x"), Chunk("a", "end"), Chunk("a", "closed"), Finished("a")]
    assert run(scheduler, NewRequest("a", ""), *items, StreamDone("a")) == expected
    scheduler.inbox.put(StreamChunk("a", "later"))
    assert ledger(scheduler) == IDLE


@pytest.mark.parametrize(
    ("opening", "item", "came", "error"),
    [
        ("fail at open", "x", [], "ValueError: told to fail at open"),
        ("", "fail", [Chunk("bad", "fail")], "ValueError: the item is fail"),
        ("fail at close", "x", [Chunk("bad", "x")], "ValueError: told to fail at close"),
    ],
)
def test_an_error_in_a_stream_fails_only_its_request(
    opening: str, item: str, came: list[Outbound[str]], error: str
) -> None:
    scheduler = streamed()
    found = run(
        scheduler,
        NewRequest("good", ""),
        NewRequest("bad", opening),
        StreamChunk("bad", item),
        StreamChunk("good", "x"),
        StreamDone("bad"),
        StreamDone("good"),
    )
    assert [m for m in found if m.request_id == "bad"] == [*came, Failed("bad", error)]
    assert [m for m in found if m.request_id == "good"] == [
        Chunk("good", "x"),
        Chunk("good", "closed"),
        Finished("good"),
    ]
    assert ledger(scheduler) == IDLE


# What the model computed


class Laps:
    """Stands in the model's place and keeps how long each of its computations took."""

    def __init__(self) -> None:
        self.ms: list[float] = []

    def __call__(self, payload: str) -> str:
        began_s = time.perf_counter()
        found = sorted(range(20_000), key=lambda number: -number)
        self.ms.append((time.perf_counter() - began_s) * 1000)
        return f"{payload}{len(found)}"


def whole_ms(act: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    act()
    return (time.perf_counter() - began_s) * 1000


def test_a_request_of_one_payload_tells_the_time_of_its_computation() -> None:
    model = Laps()
    scheduler: Scheduler = SimpleScheduler(OneShot(model))
    scheduler.inbox.put(NewRequest("a", "x"))
    whole = whole_ms(scheduler.step)
    [metrics] = ends_metrics(scheduler).values()
    assert metrics["first_items"] == 1
    assert model.ms[0] <= metrics["first_compute_ms"] <= whole


def test_a_row_of_a_batch_tells_the_time_until_it_was_out() -> None:
    model = Laps()
    scheduler = batched(lambda batch: map(model, batch))
    for name in "abc":
        scheduler.inbox.put(NewRequest(name, name))
    whole = whole_ms(scheduler.step)
    ms = [metrics["first_compute_ms"] for metrics in ends_metrics(scheduler).values()]
    assert all(sum(model.ms[: at + 1]) <= ms[at] for at in range(3))
    assert ms == sorted(ms)
    assert ms[-1] <= whole


class Clauses:
    """Gives something when it has taken as many items as its opening says, or at its end; then with every item."""

    ended = False

    def __init__(self, opening: str, model: Callable[[str], str]) -> None:
        self._wanted = int(opening)
        self._model = model

    def push(self, item: str) -> Iterator[str]:
        made = self._model(item)
        self._wanted -= 1
        if self._wanted <= 0:
            yield made
            self._model(item)

    def close(self) -> Iterable[str]:
        return [self._model("end")] if self._wanted > 0 else []


@pytest.mark.parametrize(("wanted", "first_items"), [(1, 1), (3, 3), (5, 5), (6, 6)])  # the last: by the end of five
def test_a_stream_tells_how_many_items_it_first_gave_something_for_and_the_time_that_these_took(
    wanted: int, first_items: int
) -> None:
    model = Laps()
    scheduler: Scheduler = SimpleScheduler(Streamed(lambda opening: Clauses(opening, model)))
    scheduler.inbox.put(NewRequest("a", str(wanted)))
    for _ in range(5):
        scheduler.inbox.put(StreamChunk("a", "x"))
    scheduler.inbox.put(StreamDone("a"))
    whole = whole_ms(scheduler.step)
    [metrics] = ends_metrics(scheduler).values()
    assert metrics["first_items"] == first_items
    first_ms, later_ms = sum(model.ms[:first_items]), sum(model.ms[first_items:])
    assert first_ms <= metrics["first_compute_ms"] <= whole - later_ms


def test_a_stream_that_gave_nothing_tells_nothing() -> None:
    scheduler: Scheduler = SimpleScheduler(Streamed(lambda opening: Silent()))
    for message in (NewRequest("a", ""), StreamChunk("a", "x"), StreamDone("a")):
        scheduler.inbox.put(message)
    scheduler.step()
    assert ends_metrics(scheduler) == {"a": {}}


class Silent:
    ended = False

    def push(self, item: str) -> Iterable[str]:
        return ()

    def close(self) -> Iterable[str]:
        return ()


# Laws

KINDS: dict[str, Callable[[], Scheduler]] = {
    "one-shot": lambda: SimpleScheduler(OneShot(upper)),
    "batched": lambda: batched(lambda batch: map(upper, batch), target=3),
    "streamed": streamed,
}
payloads = st.sampled_from(["x", "y", "fail", "fail at open", "fail at close", "end"])
scripts = st.lists(
    st.tuples(st.sampled_from(["new", "chunk", "done", "abort", "inquire", "step"]), st.integers(0, 9), payloads),
    max_size=60,
)


def act(scheduler: Scheduler, began: int, action: str, number: int, payload: str) -> int:
    """Do one line of a script; the number of requests that began so far. `number` may mean one of the future."""
    request_id = f"r{number % (began + 1)}"
    match action:
        case "new":
            scheduler.inbox.put(NewRequest(f"r{began}", payload))
            return began + 1
        case "chunk":
            scheduler.inbox.put(StreamChunk(request_id, payload))
        case "done":
            scheduler.inbox.put(StreamDone(request_id))
        case "abort":
            scheduler.abort(request_id)
        case "inquire" | "step":
            scheduler.inbox.put(Inquire("look"))  # a step never has to wait
            if action == "step":
                scheduler.step()
    return began


def check_ends(messages: list[Outbound[str]], request_ids: set[str]) -> None:
    """Every request has exactly one end, which is its last message."""
    by_request: dict[str, list[Outbound[str]]] = defaultdict(list)
    for message in messages:
        if not isinstance(message, Ledger):
            by_request[message.request_id].append(message)
    assert by_request.keys() == request_ids
    for found in by_request.values():
        assert [isinstance(message, Chunk) for message in found] == [True] * (len(found) - 1) + [False]


@pytest.mark.parametrize("kind", KINDS)
@given(script=scripts)
def test_every_request_of_any_script_ends_exactly_once_and_the_ledger_returns_to_zero(
    kind: str, script: list[tuple[str, int, str]]
) -> None:
    scheduler = KINDS[kind]()
    began = 0
    for line in script:
        began = act(scheduler, began, *line)
    for number in range(began):
        scheduler.abort(f"r{number}")
    scheduler.inbox.put(Inquire("last"))
    scheduler.step()
    messages = outputs(scheduler)
    check_ends(messages, {f"r{number}" for number in range(began)})
    assert ledger(scheduler) == IDLE


# Threads


def sizes(scheduler: Scheduler) -> dict[str, int]:
    """Sizes of every map and queue of the scheduler and of its two boxes."""
    parts = (scheduler, scheduler.inbox, scheduler.outbox)
    return {
        f"{type(part).__name__}{name}": len(value)
        for part in parts
        for name, value in vars(part).items()
        if isinstance(value, Sized)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_five_thousand_aborts_leave_no_map_or_queue_larger(kind: str) -> None:
    scheduler = KINDS[kind]()
    before = sizes(scheduler)
    for number in range(5_000):
        scheduler.inbox.put(NewRequest(f"{number}", "x"))
        if kind == "streamed":
            scheduler.step()
        scheduler.abort(f"{number}")
        scheduler.step()
        scheduler.abort(f"{number}")
    assert [type(message) for message in outputs(scheduler)] == [Aborted] * 5_000
    assert sizes(scheduler) == before


@pytest.mark.parametrize("kind", KINDS)
def test_two_threads_that_put_and_abort_leave_all_counts_at_zero(kind: str) -> None:
    scheduler = KINDS[kind]()
    scheduler.start()

    def call(caller: str) -> None:
        for number in range(1_000):
            request_id = f"{caller}{number}"
            scheduler.inbox.put(NewRequest(request_id, "x"))
            scheduler.inbox.put(StreamChunk(request_id, "y"))
            if number % 3 == 0:
                scheduler.abort(request_id)
            scheduler.inbox.put(StreamDone(request_id))
            if number % 3 == 1:  # races with the end
                scheduler.abort(request_id)

    callers = [threading.Thread(target=call, args=(name,)) for name in "ab"]
    for caller in callers:
        caller.start()
    messages: list[Outbound[str]] = []
    ended = 0
    while ended < 2_000:
        message = scheduler.outbox.take(timeout_s=20)
        assert message is not None
        messages.append(message)
        ended += not isinstance(message, Chunk)
    for caller in callers:
        caller.join()
    scheduler.inbox.put(Inquire("look"))
    assert scheduler.outbox.take(timeout_s=20) == Ledger("look", IDLE)
    scheduler.stop()
    check_ends(messages + outputs(scheduler), {f"{name}{number}" for name in "ab" for number in range(1_000)})


def test_stopping_aborts_what_is_live_and_ends_the_results() -> None:
    scheduler = streamed()
    scheduler.start()
    scheduler.inbox.put(NewRequest("a", ""))
    scheduler.inbox.put(StreamChunk("a", "x"))
    assert scheduler.outbox.take(timeout_s=20) == Chunk("a", "x")
    scheduler.stop()
    assert list(scheduler.outbox) == [Aborted("a")]
    assert sizes(scheduler) == sizes(streamed())


def test_a_fault_of_the_scheduler_itself_fails_what_is_live_and_ends_the_results() -> None:
    def leave(payload: str) -> str:
        raise SystemExit("enough")

    scheduler: Scheduler = SimpleScheduler(OneShot(leave))
    scheduler.inbox.put(NewRequest("a", ""))
    scheduler.inbox.put(NewRequest("b", ""))
    scheduler.start()
    assert list(scheduler.outbox) == [Failed("a", "SystemExit: enough"), Failed("b", "SystemExit: enough")]


def test_an_outbox_that_nobody_empties_ends_the_thread_in_order_with_all_it_could_hold() -> None:
    full = threading.Event()

    class Flood(Echo):
        def push(self, item: str) -> Iterator[str]:
            try:
                while True:
                    yield item
            finally:
                full.set()

    scheduler: Scheduler = SimpleScheduler(Streamed(Flood))
    scheduler.inbox.put(NewRequest("a", ""))
    scheduler.inbox.put(NewRequest("another", ""))
    scheduler.inbox.put(StreamChunk("a", "x"))
    scheduler.start()
    assert full.wait(20)
    scheduler.stop()
    messages = list(scheduler.outbox)
    assert len(messages) == 10_000
    assert set(messages) == {Chunk("a", "x")}


def test_an_outbox_that_is_full_is_told_and_loses_no_end_in_silence() -> None:
    scheduler: Scheduler = SimpleScheduler(OneShot(upper))
    scheduler.outbox = Outbox(limit=1)
    scheduler.outbox.put(Ledger("fill", {}))
    scheduler.inbox.put(NewRequest("a", "x"))
    with pytest.raises(QueueFullError):
        scheduler.step()


class EndsBadly(Echo):
    @property
    def ended(self) -> bool:
        raise ValueError("ended badly")

    @ended.setter
    def ended(self, value: bool) -> None:
        pass


def test_a_stream_that_cannot_say_whether_it_ends_fails_alone() -> None:
    scheduler: Scheduler = SimpleScheduler(Streamed(EndsBadly))
    came = run(scheduler, NewRequest("a", "x"), StreamChunk("a", "y"))
    assert came == [Chunk("a", "y"), Failed("a", "ValueError: ended badly")]
    assert ledger(scheduler) == IDLE
