"""ArScheduler under the laws of every scheduler, on SGLang's real scheduler and a tiny Llama."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.support import conformance
from tests.support.conformance import AnyScheduler, Heard, Kind, Script, scripts
from tests.support.held import container_sizes
from tests.support.serving import kv_is_whole
from tests.support.tiny_llama import VOCABULARY, tiny_llama, tiny_scheduler
from voice_runtime.errors import RequestError
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.ar import ArScheduler
from voice_runtime.schedulers.messages import Chunk, Failed, Finished, NewRequest, StreamChunk, StreamDone


class InTurn:
    """A streamed request: each item is a prompt, and they are answered one after the other."""

    def __init__(self, payload: object) -> None:
        if payload == "fail":
            raise RequestError("told to fail")
        self.closed = False
        self._prompts: list[Generate] = []

    def push(self, item: Generate) -> None:
        self._prompts.append(item)

    def close(self) -> None:
        self.closed = True

    def next(self) -> Generate | None:
        return self._prompts.pop(0) if self._prompts else None

    def result(self, items: Sequence[Any]) -> list[Any]:
        return list(items)


def prompt(number: int) -> Generate:
    """1 to 50 tokens in, 1 to 6 out; now and then more than one chunk of prefill."""
    return Generate([(number * 7 + at) % VOCABULARY for at in range(1 + number * 13 % 50)], 1 + number % 6)


KIND = Kind("ar", lambda: None, str, prompt, streamed=True, broken="fail")  # type: ignore[arg-type,return-value]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyScheduler]:
    folder = tmp_path_factory.mktemp("llama")
    tiny_llama(folder)
    plain = tiny_scheduler(folder, kv_tokens=150)
    scheduler: ArScheduler[Any, Any, list[Any]] = ArScheduler(plain._engine, InTurn)
    scheduler.start()
    yield scheduler
    scheduler.stop()


@pytest.fixture
def prefix() -> str:
    return f"p{next(_numbers)}"


def idle(scheduler: AnyScheduler) -> dict[str, int]:
    """The ledger with nothing live; what the radix tree keeps of the ended is free to be evicted."""
    held = Heard(scheduler).ledger()
    assert kv_is_whole(held), held
    return held


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_every_request_ends_exactly_once_and_nothing_is_left(scheduler: AnyScheduler, script: Script) -> None:
    player = conformance.Player(KIND, scheduler, f"p{next(_numbers)}")
    player.play(script)
    player.end()
    assert set(player.heard.ends) == set(player.begun)
    assert idle(scheduler)["live_requests"] == 0


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
def test_law(scheduler: AnyScheduler, prefix: str, law: Any) -> None:
    law(KIND, scheduler, prefix)
    idle(scheduler)


def test_the_answers_of_a_streamed_request_come_in_turn_and_then_it_ends(scheduler: AnyScheduler, prefix: str) -> None:
    """Each as long as was asked; between the answers and while no item has come, nothing is generated.

    Counts at the end are those of all the answers; the model's times are not.
    """
    whole_ms: list[float] = []
    began_s = time.perf_counter()
    heard = Heard(scheduler)
    scheduler.inbox.put(NewRequest(prefix, "talk"))
    for number in (3, 4):
        scheduler.inbox.put(StreamChunk(prefix, prompt(number)))
        for _ in range(prompt(number).max_new_tokens):
            assert isinstance(heard.take(), Chunk)
        whole_ms.append((time.perf_counter() - began_s) * 1000)
    assert heard.ledger()["generations"] == 0
    scheduler.inbox.put(StreamDone(prefix))
    end = heard.take()
    assert isinstance(end, Finished)
    assert end.metrics["completion_tokens"] == sum(prompt(number).max_new_tokens for number in (3, 4))
    assert end.metrics["prompt_tokens"] == sum(len(prompt(number).ids) for number in (3, 4))
    assert prompt(3).max_new_tokens == 4
    assert 0 < end.metrics["first_compute_ms"] < end.metrics["compute_4_ms"] < whole_ms[0]
    assert "compute_5_ms" not in end.metrics, "the times are not the first answer's"


def race(scheduler: AnyScheduler, prefix: str, rounds: int) -> Counter[str]:
    """Rounds of ten requests. After each KV is whole: a page that was freed twice or leaked would show in the sums."""
    ends: Counter[str] = Counter()
    for part in range(rounds):
        ends.update(conformance.aborts_from_many_threads_race_with_the_ends(KIND, scheduler, f"{prefix}-{part}", 10))
        assert idle(scheduler)["live_requests"] == 0
    return ends


def test_aborts_race_with_ends(scheduler: AnyScheduler, prefix: str) -> None:
    ends = race(scheduler, prefix, 10)
    assert min(ends["Aborted"], ends["Finished"]) >= 10, f"{ends}: there was no race"


@pytest.mark.soak
def test_a_thousand_aborts_that_race_with_ends_leave_every_page_whole_and_no_container_larger(
    scheduler: AnyScheduler, prefix: str
) -> None:
    race(scheduler, f"{prefix}-first", 2)
    before = engine_containers(scheduler)
    ends = race(scheduler, f"{prefix}-many", 100)
    assert engine_containers(scheduler) == before
    assert min(ends["Aborted"], ends["Finished"]) >= 100, f"{ends}: there was no race"


def test_an_end_that_upstream_brings_unasked_fails_its_request(scheduler: AnyScheduler, prefix: str) -> None:
    """As when upstream refuses a request: here an abort reaches it past our own."""
    from voice_runtime.sglang_backend.convert import abort_of

    heard = Heard(scheduler)
    long = Generate([1, 2, 3], 100)
    scheduler.inbox.put(NewRequest(prefix, "talk"))
    scheduler.inbox.put(StreamChunk(prefix, long))
    assert isinstance(heard.take(), Chunk)
    engine = scheduler._engine  # type: ignore[attr-defined]
    engine._inputs.append(abort_of(engine._keys[prefix]))
    heard.until_ended([prefix])
    end = heard.ends[prefix]
    assert isinstance(end, Failed)
    assert "refused by the engine" in end.error


def test_a_request_that_upstream_does_not_know_is_given_up_with_an_error(scheduler: AnyScheduler) -> None:
    """As if upstream had lost it: what was to tell upstream of it is dropped."""
    idle(scheduler)
    engine = scheduler._engine  # type: ignore[attr-defined]  # driven from here while its thread sleeps
    engine.add("lost", Generate([1, 2, 3], 4))
    engine._inputs.clear()
    [end] = engine.step()
    assert (end.request_id, end.finish_reason, end.error) == ("lost", "error", "the engine has lost the request")
    assert engine.is_idle()


@pytest.mark.soak
def test_twenty_thousand_aborts_leave_no_container_larger(scheduler: AnyScheduler, prefix: str) -> None:
    """Aborted while expected, waiting, in prefill or decoding, as it comes."""
    heard = Heard(scheduler)

    def abort_some(part: str, count: int) -> None:
        for number in range(count):
            request_id = f"{prefix}-{part}-{number}"
            if number % 5 == 0:
                scheduler.inbox.expect(request_id)
            else:
                scheduler.inbox.put(NewRequest(request_id, "talk"))
                scheduler.inbox.put(StreamChunk(request_id, prompt(number)))
            if number % 50 == 49:
                heard.ledger()  # a step is made
            scheduler.abort(request_id)
            if len(scheduler.outbox) > 1_000:
                heard.take()
        while heard.ledger()["live_requests"]:
            pass

    abort_some("first", 200)
    before = engine_containers(scheduler)
    abort_some("many", 20_000)
    assert engine_containers(scheduler) == before
    assert len(heard.ends) == 20_200
    idle(scheduler)


def engine_containers(scheduler: AnyScheduler) -> dict[str, int]:
    """Sizes of ours and of the queues and batches of upstream's scheduler; its radix tree may keep what has ended."""
    sizes = container_sizes(scheduler, ("voice_runtime", "tests"))
    upstream = scheduler._engine._scheduler  # type: ignore[attr-defined]
    sizes["waiting"] = len(upstream.waiting_queue)
    sizes["running"] = len(upstream.running_batch.reqs)
    return sizes


def test_stop_ends_what_is_live_and_nothing_begins_after_it(scheduler: AnyScheduler, prefix: str) -> None:
    conformance.stop_ends_what_is_live_and_nothing_begins_after_it(KIND, scheduler, prefix)
