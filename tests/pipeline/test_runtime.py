"""The pipeline over real sockets: where results go, what an abort, a failure and a death cost, and to whom."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.played_workers import CASCADE, PATIENCE_S, Cast, PlayedWorker, Results, played
from voice_runtime.pipeline import wire
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.pipeline.runtime import Marks, Result
from voice_runtime.schedulers.messages import (
    Abort,
    Aborted,
    Chunk,
    Ended,
    Failed,
    Finished,
    Ledger,
    NewRequest,
    StreamChunk,
    StreamDone,
)
from voice_runtime.stages.payloads import (
    Clause,
    Message,
    Opening,
    Payload,
    Prompt,
    SpokenClause,
    TokenIds,
    Transcript,
    Utterance,
)

CHAIN = ("thinker", "text", "speech")
PROMPT = Prompt([Message("user", "Hello.")])
TOKENS, MORE_TOKENS = TokenIds([1, 2]), TokenIds([3])
CLAUSE, SPOKEN = Clause("Hi. "), SpokenClause.spread("Hi. ", b"\x01\x02", 24_000)


def config(deadline_s: float = 60.0) -> PipelineConfig:
    session = msgspec.structs.replace(CASCADE.session, request_deadline_s=deadline_s)
    return msgspec.structs.replace(CASCADE, session=session)


@pytest.fixture
async def cast(tmp_path: Path) -> AsyncIterator[Cast]:
    async with played(tmp_path) as cast:
        yield cast


class Reply:
    """A request that the stages of the reply have just begun."""

    def __init__(self, cast: Cast) -> None:
        self.id = cast.pipeline.new_id()
        self.results = Results()
        self.marks = cast.pipeline.submit("thinker", self.id, PROMPT, self.results)

    @classmethod
    async def begun(cls, cast: Cast) -> "Reply":
        reply = cls(cast)
        for stage in CHAIN:
            opened = await cast.take(stage)
            assert opened == NewRequest(reply.id, PROMPT if stage == "thinker" else Opening())
        return reply

    async def fails(self) -> str:
        """Wait for its end, a failure; what it says."""
        failed = await self.results.next()
        assert isinstance(failed, Failed)
        assert failed.request_id == self.id
        return failed.error


async def ended(settled: asyncio.Future[None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await settled


async def serves(cast: Cast, stage: str) -> None:
    """A last stage takes a request and finishes it: what its worker had said before has arrived."""
    results, request_id = Results(), cast.pipeline.new_id()
    cast.pipeline.submit(stage, request_id, Opening(), results)
    assert await cast.take(stage) == NewRequest(request_id, Opening())
    await cast.give(stage, Finished(request_id))
    assert await results.next() == Finished(request_id)


async def finish(cast: Cast, reply: Reply) -> None:
    """Every stage finishes, the first one first."""
    for stage in CHAIN:
        await cast.give(stage, Finished(reply.id))
    assert await reply.results.next() == Finished(reply.id)


# Results


async def test_chunks_pass_from_thinker_to_text_to_speech_to_the_listener_in_order(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    for tokens in (TOKENS, MORE_TOKENS):
        await cast.give("thinker", Chunk(reply.id, tokens))
    assert [await cast.take("text") for _ in range(2)] == [
        StreamChunk(reply.id, TOKENS),
        StreamChunk(reply.id, MORE_TOKENS),
    ]
    await cast.give("text", Chunk(reply.id, CLAUSE))
    assert await cast.take("speech") == StreamChunk(reply.id, CLAUSE)
    for _ in range(2):
        await cast.give("speech", Chunk(reply.id, SPOKEN))
    assert [await reply.results.next() for _ in range(2)] == [Chunk(reply.id, SPOKEN)] * 2

    await cast.give("thinker", Finished(reply.id, None, {"completion_tokens": 3}))
    assert await cast.take("text") == StreamDone(reply.id)
    await cast.give("text", Finished(reply.id))
    assert await cast.take("speech") == StreamDone(reply.id)
    assert not reply.results.left()
    await cast.give("speech", Finished(reply.id))
    assert await reply.results.next() == Finished(reply.id)
    assert await cast.left() == {}
    assert (await cast.quiet())["requests"] == 0


async def test_the_marks_tell_when_each_stage_first_brought_something_and_what_it_counted(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    for stage, item in (("thinker", TOKENS), ("text", CLAUSE), ("speech", SPOKEN)):
        await cast.give(stage, Chunk(reply.id, item))
        await cast.quiet()
    first_s = dict(reply.marks.first_s)
    assert list(first_s) == list(CHAIN)
    assert sorted(first_s.values()) == list(first_s.values())
    await cast.give("speech", Chunk(reply.id, SPOKEN))
    await cast.give("thinker", Finished(reply.id, None, {"completion_tokens": 3}))
    await cast.quiet()
    assert reply.marks == Marks(first_s, {"thinker": {"completion_tokens": 3}})


async def test_a_one_shot_stage_has_its_result_in_its_end(cast: Cast) -> None:
    results, request_id = Results(), cast.pipeline.new_id()
    cast.pipeline.submit("asr", request_id, Utterance(b"\0\0"), results)
    assert await cast.take("asr") == NewRequest(request_id, Utterance(b"\0\0"))
    await cast.give("asr", Finished(request_id, Transcript("hello")))
    assert await results.next() == Finished(request_id, Transcript("hello"))
    assert await cast.left() == {}


async def test_a_text_of_our_own_enters_at_the_voice_in_clauses_and_comes_out_as_sound(cast: Cast) -> None:
    results, request_id = Results(), cast.pipeline.new_id()
    marks = cast.pipeline.say("speech", request_id, "Good morning. How are you today?", results)
    assert await cast.take("speech") == NewRequest(request_id, Opening())
    taken = [await cast.take("speech") for _ in range(3)]
    assert taken == [
        StreamChunk(request_id, Clause("Good morning. ")),
        StreamChunk(request_id, Clause("How are you today?")),
        StreamDone(request_id),
    ]
    await cast.give("speech", Chunk(request_id, SPOKEN))
    await cast.give("speech", Finished(request_id))
    assert [await results.next() for _ in range(2)] == [Chunk(request_id, SPOKEN), Finished(request_id)]
    assert list(marks.first_s) == ["speech"]
    assert await cast.left() == {}


async def test_a_text_of_our_own_can_be_aborted_like_a_reply(cast: Cast) -> None:
    results, request_id = Results(), cast.pipeline.new_id()
    cast.pipeline.say("speech", request_id, "Hello.", results)
    settled = cast.pipeline.abort(request_id)
    told = [await cast.take("speech") for _ in range(4)]
    assert told[-1] == Abort(request_id)
    await cast.give("speech", Aborted(request_id))
    await ended(settled)
    assert not results.left()


async def test_two_requests_at_once_keep_their_results_apart(cast: Cast) -> None:
    one, other = await Reply.begun(cast), await Reply.begun(cast)
    await cast.give("speech", Chunk(other.id, SPOKEN))
    await cast.give("speech", Chunk(one.id, SPOKEN))
    assert await one.results.next() == Chunk(one.id, SPOKEN)
    assert other.results.left() == [Chunk(other.id, SPOKEN)]
    await finish(cast, one)
    await finish(cast, other)


# A stop string: text ends before the thinker does


@pytest.mark.parametrize("last", ["thinker", "speech"])
@pytest.mark.parametrize("answer", [Aborted, Finished, lambda request_id: Failed(request_id, "OSError: late")])
async def test_a_stage_that_finishes_early_has_its_upstream_aborted_and_the_reply_completes(
    cast: Cast, answer: Callable[[str], Ended[Payload]], last: str
) -> None:
    reply = await Reply.begun(cast)
    await cast.give("text", Chunk(reply.id, CLAUSE))
    await cast.give("text", Finished(reply.id))
    assert await cast.take("thinker") == Abort(reply.id)
    assert [await cast.take("speech") for _ in range(2)] == [StreamChunk(reply.id, CLAUSE), StreamDone(reply.id)]

    async def thinker_ends() -> None:
        await cast.give("thinker", Chunk(reply.id, MORE_TOKENS))  # on its way when it was aborted
        await cast.give("thinker", answer(reply.id))

    async def speech_ends() -> None:
        await cast.give("speech", Chunk(reply.id, SPOKEN))
        await cast.give("speech", Finished(reply.id))

    ends = [thinker_ends, speech_ends] if last == "speech" else [speech_ends, thinker_ends]
    await ends[0]()
    assert (await cast.quiet())["requests"] == 1
    await ends[1]()
    assert await reply.results.next() == Chunk(reply.id, SPOKEN)
    assert await reply.results.next() == Finished(reply.id)
    assert await cast.left() == {}
    assert not reply.results.left()
    assert (await cast.quiet())["requests"] == 0


async def test_a_reply_whose_text_has_finished_early_keeps_its_deadline_and_its_time_to_settle(tmp_path: Path) -> None:
    async with played(tmp_path, config(deadline_s=0.3), settle_s=0.2) as cast:
        reply = await Reply.begun(cast)
        await cast.give("text", Finished(reply.id))
        assert await cast.take("thinker") == Abort(reply.id)
        await cast.give("thinker", Aborted(reply.id))
        assert await reply.fails() == "not done after 0.3 s"
        failed_s = time.monotonic()
        assert [await cast.take("speech") for _ in range(2)] == [StreamDone(reply.id), Abort(reply.id)]
        assert await cast.of("speech").ended() == -signal.SIGKILL
        assert time.monotonic() - failed_s > 0.19
        await ended(cast.pipeline.abort(reply.id))


# Failures


@pytest.mark.parametrize("failing", CHAIN)
async def test_a_stage_that_fails_ends_the_request_once_and_all_must_settle(cast: Cast, failing: str) -> None:
    reply = await Reply.begun(cast)
    await cast.give(failing, Failed(reply.id, "RequestError: prompt has 9 tokens, expected at most 8"))
    assert await reply.fails() == f"stage {failing}: RequestError: prompt has 9 tokens, expected at most 8"
    others = [stage for stage in CHAIN if stage != failing]
    assert await cast.left() == {stage: [Abort(reply.id)] for stage in others}

    settled = cast.pipeline.abort(reply.id)
    await cast.give(others[0], Aborted(reply.id))
    assert (await cast.quiet())["requests"] == 1
    assert not settled.done()
    await cast.give(others[1], Failed(reply.id, "OSError: another"))
    await ended(settled)
    assert await cast.left() == {}
    assert (await cast.quiet())["requests"] == 0
    assert not reply.results.left()


async def test_an_error_that_we_did_not_name_is_not_told_to_the_caller(
    cast: Cast, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await Reply.begun(cast)
    await cast.give("speech", Failed(reply.id, "OSError: /home/somebody/voice.bin is missing"))
    assert await reply.fails() == "stage speech: an internal error, see the log"
    assert f"request {reply.id}: stage speech: OSError: /home/somebody/voice.bin is missing" in caplog.messages


async def test_a_stage_that_aborts_unasked_fails_the_request(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    await cast.give("text", Aborted(reply.id))
    assert (await reply.fails()).startswith("stage text: ")
    assert await cast.left() == {stage: [Abort(reply.id)] for stage in ("thinker", "speech")}


async def test_a_request_that_is_not_done_by_its_deadline_fails_and_is_aborted(tmp_path: Path) -> None:
    async with played(tmp_path, config(deadline_s=0.1)) as cast:
        reply = await Reply.begun(cast)
        assert await reply.fails() == "not done after 0.1 s"
        for stage in CHAIN:
            assert await cast.take(stage) == Abort(reply.id)
            await cast.give(stage, Aborted(reply.id))
        assert (await cast.quiet())["requests"] == 0
        assert not reply.results.left()


async def test_a_request_that_is_done_by_its_deadline_hears_no_more_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with played(tmp_path, config(deadline_s=0.3)) as cast:
        done, late = await Reply.begun(cast), await Reply.begun(cast)
        await finish(cast, done)
        await late.fails()
        assert not done.results.left()
        assert done.id not in caplog.text


class Clumsy(Results):
    """A session with a fault of its own."""

    def __call__(self, result: Result) -> None:
        super().__call__(result)
        raise ZeroDivisionError("a fault of the session")


async def test_a_listener_that_raises_costs_only_its_own_request_and_gets_a_failed(
    cast: Cast, caplog: pytest.LogCaptureFixture
) -> None:
    other, clumsy_id, clumsy = await Reply.begun(cast), cast.pipeline.new_id(), Clumsy()
    cast.pipeline.submit("thinker", clumsy_id, PROMPT, clumsy)
    await cast.left()
    await cast.give("speech", Chunk(clumsy_id, SPOKEN))
    await cast.give("speech", Chunk(other.id, SPOKEN))
    assert await clumsy.next() == Chunk(clumsy_id, SPOKEN)
    assert isinstance(await clumsy.next(), Failed)
    assert await cast.left() == {stage: [Abort(clumsy_id)] for stage in CHAIN}
    assert await other.results.next() == Chunk(other.id, SPOKEN)
    await finish(cast, other)
    assert not clumsy.left()
    assert "ZeroDivisionError" in caplog.text


# Aborts


async def test_an_abort_is_told_once_to_every_live_stage_and_done_when_all_have_settled(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    await cast.give("thinker", Finished(reply.id))
    assert await cast.take("text") == StreamDone(reply.id)
    settled = cast.pipeline.abort(reply.id)
    again = cast.pipeline.abort(reply.id)
    assert await cast.left() == {stage: [Abort(reply.id)] for stage in ("text", "speech")}
    await cast.give("speech", Aborted(reply.id))
    await cast.quiet()
    assert not settled.done()
    assert not again.done()
    await cast.give("text", Finished(reply.id))  # it was done before the abort reached it
    await ended(settled)
    await ended(again)
    assert await cast.left() == {}


async def test_nothing_reaches_the_listener_after_an_abort(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    await cast.give("speech", Chunk(reply.id, SPOKEN))
    assert await reply.results.next() == Chunk(reply.id, SPOKEN)
    settled = cast.pipeline.abort(reply.id)
    await cast.give("thinker", Chunk(reply.id, TOKENS))
    await cast.give("text", Chunk(reply.id, CLAUSE))
    await cast.give("speech", Chunk(reply.id, SPOKEN))
    await cast.give("thinker", Failed(reply.id, "OSError: late"))
    await cast.give("text", Aborted(reply.id))
    await cast.give("speech", Finished(reply.id))
    await ended(settled)
    assert not reply.results.left()
    assert await cast.left() == {stage: [Abort(reply.id)] for stage in CHAIN}


def late(request_id: str) -> list[tuple[str, Chunk[Payload] | Ended[Payload] | Ledger]]:
    return [
        ("thinker", Chunk(request_id, TOKENS)),
        ("text", Finished(request_id)),
        ("speech", Chunk(request_id, SPOKEN)),
        ("speech", Finished(request_id)),
        ("speech", Failed(request_id, "OSError: late")),
        ("thinker", Aborted(request_id)),
        ("asr", Finished(request_id, Transcript("late"))),
        ("asr", Ledger(request_id, {"live_requests": 7})),
    ]


async def test_late_messages_of_a_settled_request_change_nothing(cast: Cast, caplog: pytest.LogCaptureFixture) -> None:
    reply, other = await Reply.begun(cast), await Reply.begun(cast)
    await finish(cast, reply)
    await cast.left()
    for stage, message in late(reply.id):
        await cast.give(stage, message)
    assert await cast.left() == {}
    assert not reply.results.left()
    await finish(cast, other)
    assert not caplog.records


async def test_messages_of_a_stage_that_has_ended_change_nothing(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    await cast.give("thinker", Finished(reply.id))
    await cast.give("thinker", Chunk(reply.id, TOKENS))
    await cast.give("thinker", Finished(reply.id))
    await cast.give("thinker", Failed(reply.id, "OSError: late"))
    assert await cast.left() == {"text": [StreamDone(reply.id)]}
    assert not reply.results.left()
    await cast.give("text", Finished(reply.id))
    await cast.give("speech", Finished(reply.id))
    assert await reply.results.next() == Finished(reply.id)


async def test_messages_of_unknown_requests_change_nothing(cast: Cast, caplog: pytest.LogCaptureFixture) -> None:
    for stage, message in late("f" * 16):
        await cast.give(stage, message)
    assert await cast.left() == {}
    await finish(cast, await Reply.begun(cast))
    assert not caplog.records


async def test_an_abort_of_an_unknown_or_settled_request_is_settled_already(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    await finish(cast, reply)
    await cast.quiet()  # the last stage's end may be read before that of the others
    assert cast.pipeline.abort(reply.id).done()
    assert cast.pipeline.abort("f" * 16).done()


async def test_a_worker_that_never_settles_an_abort_is_ended(tmp_path: Path) -> None:
    async with played(tmp_path, settle_s=0.1) as cast:
        reply = await Reply.begun(cast)
        settled = cast.pipeline.abort(reply.id)
        await cast.give("text", Aborted(reply.id))
        await cast.give("thinker", Aborted(reply.id))
        assert await cast.of("speech").ended() == -signal.SIGKILL
        await ended(settled)
        assert cast.of("thinker").process.returncode is None
        assert cast.of("asr").process.returncode is None


async def test_an_abort_that_has_settled_in_time_ends_no_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with played(tmp_path, settle_s=0.2) as cast:
        reply, stuck = await Reply.begun(cast), await Reply.begun(cast)
        settled = cast.pipeline.abort(reply.id)
        for stage in CHAIN:
            await cast.give(stage, Aborted(reply.id))
        await ended(settled)
        stuck_settled = cast.pipeline.abort(stuck.id)
        for stage in ("thinker", "speech"):
            await cast.give(stage, Aborted(stuck.id))
        await ended(stuck_settled)  # text has not settled it and was ended, after the other's time
        assert "has not settled" in caplog.text
        assert reply.id not in caplog.text


# Workers


async def test_the_death_of_a_worker_fails_exactly_the_requests_it_held(cast: Cast) -> None:
    reply, spoken = await Reply.begun(cast), await Reply.begun(cast)
    heard, recognition_id = Results(), cast.pipeline.new_id()
    cast.pipeline.submit("asr", recognition_id, Utterance(b"\0\0"), heard)
    await cast.take("asr")
    await cast.give("thinker", Finished(spoken.id))  # the thinker holds it no more
    await cast.quiet()

    await cast.of("thinker").end()
    assert await reply.fails() == "StageDiedError: worker thinker has ended"
    assert [await cast.take("text") for _ in range(2)] == [StreamDone(spoken.id), Abort(reply.id)]
    assert await cast.take("speech") == Abort(reply.id)
    assert cast.pipeline.health()["thinker"] == "starting"
    await cast.give("text", Aborted(reply.id))
    await cast.give("speech", Aborted(reply.id))
    await ended(cast.pipeline.abort(reply.id))

    await cast.give("asr", Finished(recognition_id, Transcript("hello")))
    assert await heard.next() == Finished(recognition_id, Transcript("hello"))
    await cast.give("text", Finished(spoken.id))
    await cast.give("speech", Finished(spoken.id))
    assert await spoken.results.next() == Finished(spoken.id)
    assert not reply.results.left()


async def test_a_request_that_ends_with_its_worker_is_settled_though_it_was_aborted(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    settled = cast.pipeline.abort(reply.id)
    await cast.give("thinker", Aborted(reply.id))
    await cast.quiet()
    assert not settled.done()
    await cast.of("speech").end()
    await ended(settled)
    assert not reply.results.left()


async def test_the_successor_of_a_worker_is_greeted_on_fresh_sockets_with_nothing_stale(cast: Cast) -> None:
    for _ in range(5):
        reply = await Reply.begun(cast)
        await cast.give("thinker", Chunk(reply.id, TOKENS))
        worker = cast.of("speech")
        await cast.give("text", Chunk(reply.id, CLAUSE))  # speech dies before it takes this
        await worker.end()
        await reply.fails()
        assert await cast.take("thinker") == Abort(reply.id)
        await cast.give("thinker", Aborted(reply.id))

        successor = await cast.enter("voice")  # the first thing that it is told is its Welcome
        assert successor.welcome == wire.Welcome(os.getpid())
        async with asyncio.timeout(PATIENCE_S):
            await cast.pipeline.wait_ready()
        assert await cast.left() == {}
        reply = await Reply.begun(cast)
        await cast.give("speech", Chunk(reply.id, SPOKEN))
        assert await reply.results.next() == Chunk(reply.id, SPOKEN)
        await finish(cast, reply)
        await cast.left()


@pytest.mark.parametrize("attempt", range(10))
async def test_a_worker_that_connects_before_the_gateway_listens_gets_its_welcome(tmp_path: Path, attempt: int) -> None:
    early = await PlayedWorker.start(tmp_path, "thinker")
    try:
        async with played(tmp_path, ready=False) as cast:
            await early.welcomed()
            assert early.welcome == wire.Welcome(os.getpid())
            cast.workers["thinker"] = early
            await early.send(wire.Ready("thinker", {}))
            for name in ("recognition", "voice"):
                await cast.enter(name)
            async with asyncio.timeout(PATIENCE_S):
                await cast.pipeline.wait_ready()
            await finish(cast, await Reply.begun(cast))
    finally:
        await early.end()


async def test_a_worker_whose_second_socket_connects_late_gets_its_welcome(tmp_path: Path) -> None:
    async with played(tmp_path, ready=False) as cast:
        late = cast.workers["thinker"] = await PlayedWorker.half_start(tmp_path, "thinker")
        for name in ("recognition", "voice"):  # meanwhile the Hello of the late one has come
            await cast.enter(name)
        late.connect_in()
        await late.welcomed()
        await late.send(wire.Ready("thinker", {}))
        async with asyncio.timeout(PATIENCE_S):
            await cast.pipeline.wait_ready()
        await finish(cast, await Reply.begun(cast))


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1 not msgpack",
        b"",
        wire.encode(wire.FromStage("songs", Chunk("0" * 16, TOKENS))),
        wire.encode(wire.FromStage("speech", Chunk("0" * 16, SPOKEN))),  # a stage of another worker
        wire.encode(wire.Welcome(1)),
    ],
    ids=["undecodable", "empty", "unknown stage", "stage of another worker", "message to a worker"],
)
async def test_a_worker_that_sends_what_cannot_be_taken_is_ended_and_no_other(cast: Cast, data: bytes) -> None:
    reply = await Reply.begun(cast)
    assert reply.id == "0" * 16
    await cast.of("thinker").send_bytes(data)
    assert await cast.of("thinker").ended() == -signal.SIGKILL
    assert await reply.fails() == "StageDiedError: worker thinker has ended"
    assert not reply.results.left()
    for stage in ("text", "speech"):
        assert await cast.take(stage) == Abort(reply.id)
        await cast.give(stage, Aborted(reply.id))
    await cast.enter("thinker")
    async with asyncio.timeout(PATIENCE_S):
        await cast.pipeline.wait_ready()
    await finish(cast, await Reply.begun(cast))
    assert cast.of("speech").process.returncode is None


async def test_a_request_for_a_worker_that_is_not_there_fails_but_not_before_it_is_submitted(tmp_path: Path) -> None:
    async with played(tmp_path, ready=False) as cast:
        await cast.enter("voice")
        reply = Reply(cast)
        assert not reply.results.left()
        assert await reply.fails() == "StageDiedError: worker thinker is not running"
        for stage in ("text", "speech"):
            assert await cast.take(stage) == NewRequest(reply.id, Opening())
            assert await cast.take(stage) == Abort(reply.id)
            await cast.give(stage, Aborted(reply.id))
        await ended(cast.pipeline.abort(reply.id))


async def test_a_worker_that_takes_nothing_costs_its_own_requests_and_holds_up_nobody(cast: Cast) -> None:
    reply = await Reply.begun(cast)
    for _ in range(3 * wire.HIGH_WATER_MARK):  # speech takes none of them
        await cast.give("text", Chunk(reply.id, CLAUSE))
    assert "QueueFullError: 2000 messages wait for worker voice" in await reply.fails()
    assert await cast.take("thinker") == Abort(reply.id)
    await serves(cast, "asr")


# The state of it all


async def test_health_tells_which_stages_are_ready_and_wait_ready_waits_for_all(tmp_path: Path) -> None:
    expected = dict.fromkeys(CASCADE.stages, "starting")
    async with played(tmp_path, ready=False) as cast:
        ready = asyncio.ensure_future(cast.pipeline.wait_ready())
        for name, stages in (("recognition", ["asr", "turn_end"]), ("voice", ["text", "speech"])):
            assert cast.pipeline.health() == expected
            await cast.enter(name)
            await serves(cast, stages[-1])
            expected |= dict.fromkeys(stages, "ready")
            assert cast.pipeline.health() == expected
            assert not ready.done()
        await cast.enter("thinker")
        async with asyncio.timeout(PATIENCE_S):
            await ready
        assert cast.pipeline.health() == dict.fromkeys(CASCADE.stages, "ready")


async def test_a_worker_that_has_said_hello_and_loads_is_starting(tmp_path: Path) -> None:
    async with played(tmp_path, ready=False) as cast:
        worker = await PlayedWorker.start(tmp_path, "thinker")
        cast.workers["thinker"] = worker
        await worker.welcomed()
        assert set(cast.pipeline.health().values()) == {"starting"}
        facts = (await cast.pipeline.resources())["workers"]
        assert facts["thinker"]["pid"] == worker.process.pid
        assert facts["voice"] is None


async def test_resources_tell_what_every_stage_holds_and_what_every_worker_costs(cast: Cast) -> None:
    asking = asyncio.ensure_future(cast.pipeline.resources())
    for name, stages in CASCADE.workers().items():
        await cast.workers[name].answer_inquiries(stages, {"live_requests": len(name)})
    resources = await asking
    assert resources["requests"] == 0
    assert resources["stages"] == {name: {"live_requests": len(stage.worker)} for name, stage in CASCADE.stages.items()}
    assert resources["totals"] == {"live_requests": sum(len(stage.worker) for stage in CASCADE.stages.values())}
    for name, worker in cast.workers.items():
        facts = resources["workers"][name]
        assert (facts["pid"], facts["generation"], facts["pools"]) == (worker.process.pid, 1, {"native": 1})
        assert facts["rss_bytes"] > 0


async def test_the_resources_of_a_stage_that_does_not_answer_in_time_are_none(tmp_path: Path) -> None:
    async with played(tmp_path, ledger_timeout_s=0.3) as cast:
        asking = asyncio.ensure_future(cast.pipeline.resources())
        await cast.workers["voice"].answer_inquiries(["text", "speech"], {"live_requests": 0})
        await cast.workers["recognition"].answer_inquiries(["asr", "turn_end"], {"live_requests": 0})
        stages = (await asking)["stages"]
        assert stages.pop("thinker") is None
        assert all(held == {"live_requests": 0} for held in stages.values())
        assert len(stages) == 4


async def test_a_pipeline_that_stops_fails_what_is_under_way(tmp_path: Path) -> None:
    async with played(tmp_path) as cast:
        reply, aborted = await Reply.begun(cast), await Reply.begun(cast)
        settled = cast.pipeline.abort(aborted.id)
    assert await reply.fails() == "the pipeline has stopped"
    assert not reply.results.left()
    assert not aborted.results.left()
    assert settled.done()


async def test_ids_are_new_and_of_one_length(cast: Cast) -> None:
    ids = [cast.pipeline.new_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert {len(request_id) for request_id in ids} == {16}
