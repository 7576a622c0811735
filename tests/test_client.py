"""The caller's loudspeaker under a clock of our own, and a caller against a scripted server on a real socket."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from voice_runtime import client
from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.client import FADE_MS, Loudspeaker

RATE_HZ = 8_000
A_MS = RATE_HZ // 1000  # samples
FADE = FADE_MS * A_MS
START_S = 5_000.0  # as large as a real monotonic clock


def at(ms: float) -> float:
    return START_S + ms / 1000


def sound(ms: int) -> Samples:
    """No two neighbours alike, so that a sample played twice or left out is seen."""
    return to_samples(to_pcm(np.random.default_rng(ms).uniform(0.1, 0.9, ms * A_MS).astype(np.float32)))


def playing(samples: Samples) -> Loudspeaker:
    loudspeaker = Loudspeaker(RATE_HZ)
    loudspeaker.begin(at(0))
    loudspeaker.push(to_pcm(samples), at(0))
    return loudspeaker


def heard(loudspeaker: Loudspeaker, start_ms: int, end_ms: int) -> Samples:
    loudspeaker.buffered_ms(at(end_ms))
    return loudspeaker.sound(at(start_ms), at(end_ms))


def test_sound_is_heard_from_the_time_it_came_and_silence_where_there_was_none() -> None:
    first, second = sound(30), sound(50)
    loudspeaker = playing(first)
    loudspeaker.push(to_pcm(second), at(40))
    np.testing.assert_array_equal(
        heard(loudspeaker, -10, 100),
        np.concatenate([np.zeros(10 * A_MS), first, np.zeros(10 * A_MS), second, np.zeros(10 * A_MS)]),
    )
    assert [piece.at_s for piece in loudspeaker.heard] == [at(0), at(40)]
    assert loudspeaker.played_ms == 80
    assert loudspeaker.underruns == 1


def test_a_part_of_what_was_heard_begins_and_ends_at_its_times() -> None:
    samples = sound(100)
    np.testing.assert_array_equal(heard(playing(samples), 30, 70), samples[30 * A_MS : 70 * A_MS])


def test_a_pause_fades_out_within_20_ms_and_then_all_is_silent() -> None:
    samples = sound(200)
    loudspeaker = playing(samples)
    loudspeaker.pause(at(50))
    out = heard(loudspeaker, 50, 150)
    gain = out[:FADE] / samples[50 * A_MS :][:FADE]
    np.testing.assert_allclose(gain, 1 - np.arange(1, FADE + 1) / FADE, atol=1e-3)
    assert not out[FADE:].any()


def test_what_fades_out_is_not_played_and_stays_buffered() -> None:
    loudspeaker = playing(sound(200))
    loudspeaker.pause(at(50))
    for ms in (50, 60, 70, 500):
        assert loudspeaker.buffered_ms(at(ms)) == 150
        assert loudspeaker.played_ms == 50


def test_a_resumed_reply_goes_on_from_the_sample_at_which_the_fade_began_and_fades_in() -> None:
    samples = sound(200)
    loudspeaker = playing(samples)
    loudspeaker.pause(at(50))
    loudspeaker.resume(at(500))
    out = heard(loudspeaker, 500, 650)
    gain = out[:FADE] / samples[50 * A_MS :][:FADE]
    np.testing.assert_allclose(gain, np.arange(1, FADE + 1) / FADE, atol=1e-3)
    np.testing.assert_array_equal(out[FADE:], samples[50 * A_MS + FADE :])
    assert loudspeaker.played_ms == 200


def test_a_fade_out_ends_before_a_reply_that_is_resumed_at_once_goes_on() -> None:
    samples = sound(200)
    loudspeaker = playing(samples)
    loudspeaker.pause(at(50))
    loudspeaker.resume(at(55))
    assert loudspeaker.buffered_ms(at(50 + FADE_MS)) == 150
    np.testing.assert_array_equal(heard(loudspeaker, 50 + 2 * FADE_MS, 200 + FADE_MS), samples[(50 + FADE_MS) * A_MS :])


def test_a_second_pause_does_not_make_the_first_ones_fade_out_longer() -> None:
    loudspeaker = playing(sound(200))
    loudspeaker.pause(at(50))
    loudspeaker.resume(at(55))
    loudspeaker.pause(at(60))
    assert not heard(loudspeaker, 50 + FADE_MS, 300).any()
    assert loudspeaker.played_ms == 50


def test_a_pause_during_a_fade_in_is_never_louder_than_the_fade_in_was() -> None:
    samples = sound(200)
    loudspeaker = playing(samples)
    loudspeaker.pause(at(50))
    loudspeaker.resume(at(500))
    loudspeaker.pause(at(505))
    gain = heard(loudspeaker, 505, 505 + FADE_MS) / samples[55 * A_MS :][:FADE]
    assert 0.05 < gain.max() < 0.3
    assert loudspeaker.played_ms == 55
    loudspeaker.resume(at(600))
    np.testing.assert_array_equal(heard(loudspeaker, 600 + FADE_MS, 745), samples[(55 + FADE_MS) * A_MS :])


def test_a_fade_out_is_no_longer_than_what_is_buffered_and_still_ends_in_silence() -> None:
    loudspeaker = playing(sound(60))
    loudspeaker.pause(at(50))
    out = heard(loudspeaker, 50, 100)
    assert out[: 10 * A_MS - 1].all()
    assert not out[10 * A_MS - 1 :].any()


@pytest.mark.parametrize("flushed_ms", [10, 55, 300])
def test_nothing_is_played_after_a_flush_whether_it_sounds_fades_or_is_paused(flushed_ms: int) -> None:
    loudspeaker = playing(sound(400))
    if flushed_ms >= 50:
        loudspeaker.pause(at(50))
    loudspeaker.flush(at(flushed_ms))
    loudspeaker.resume(at(flushed_ms + 1))
    assert not heard(loudspeaker, flushed_ms, 1_000).any()
    assert heard(loudspeaker, 0, min(flushed_ms, 50)).all()
    assert loudspeaker.played_ms == min(flushed_ms, 50)


def test_no_underrun_is_counted_while_a_reply_is_paused() -> None:
    loudspeaker = playing(sound(50))
    loudspeaker.pause(at(60))
    loudspeaker.push(to_pcm(sound(50)), at(70))
    assert loudspeaker.underruns == 0
    loudspeaker.resume(at(80))
    loudspeaker.push(to_pcm(sound(50)), at(200))
    assert loudspeaker.underruns == 1


def test_the_end_of_a_reply_is_heard_before_the_next_and_counts_for_neither_twice() -> None:
    first, second = sound(50), sound(70)
    loudspeaker = playing(first)
    loudspeaker.begin(at(40))
    loudspeaker.push(to_pcm(second), at(45))
    assert loudspeaker.played_ms == 0
    np.testing.assert_array_equal(heard(loudspeaker, 0, 120), np.concatenate([first, second]))
    assert loudspeaker.played_ms == 70


def test_a_paused_reply_is_dropped_when_the_next_begins() -> None:
    second = sound(70)
    loudspeaker = playing(sound(50))
    loudspeaker.pause(at(20))
    loudspeaker.begin(at(100))
    loudspeaker.push(to_pcm(second), at(100))
    np.testing.assert_array_equal(heard(loudspeaker, 100, 170), second)


@given(st.lists(st.tuples(st.sampled_from(["pause", "resume", "wait", "push"]), st.integers(0, 90)), max_size=30))
def test_on_any_schedule_every_sample_that_counts_as_played_was_heard_once_or_faded(
    steps: list[tuple[str, int]],
) -> None:
    loudspeaker, now_ms, pushed = playing(sound(100)), 0, 100
    for step, ms in steps:
        now_ms += ms
        match step:
            case "pause":
                loudspeaker.pause(at(now_ms))
            case "resume":
                loudspeaker.resume(at(now_ms))
            case "push":
                loudspeaker.push(to_pcm(sound(ms)), at(now_ms))
                pushed += ms
        assert loudspeaker.buffered_ms(at(now_ms)) + loudspeaker.played_ms == pushed
    loudspeaker.resume(at(now_ms))
    assert loudspeaker.buffered_ms(at(now_ms + pushed + FADE_MS)) == 0
    assert loudspeaker.played_ms == pushed
    ends = [piece.at_s + len(piece.pcm) / 2 / RATE_HZ for piece in loudspeaker.heard]
    assert all(end <= piece.at_s + 1e-9 for end, piece in zip(ends, loudspeaker.heard[1:], strict=False))


# The caller against a server whose every message is written here

READY = {"type": "ready", "session": "ab", "resume": "t0ken/+", "input_rate": 16_000, "output_rate": RATE_HZ}


class Peer:
    """The server's end."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket

    async def tell(self, type_: str, **fields: object) -> None:
        await self.socket.send(json.dumps({"type": type_, **fields}))

    async def event(self) -> dict[str, Any]:
        """The next event; sound is passed over."""
        while isinstance(message := await self.socket.recv(), bytes):
            pass
        return dict(json.loads(message))

    async def frames_before_event(self) -> int:
        """How many pieces of sound come before the next event."""
        frames = 0
        while isinstance(await self.socket.recv(), bytes):
            frames += 1
        return frames


@contextlib.asynccontextmanager
async def server(script: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[str]:
    async def answer(socket: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            await socket.send(json.dumps(READY))
            await script(Peer(socket))

    async with asyncio.timeout(20), serve(answer, "127.0.0.1", 0) as served:
        port = next(iter(served.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}"


async def test_a_caller_reports_at_once_when_it_is_paused() -> None:
    waited: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.tell("reply_started", reply="r1")
        await peer.socket.send(to_pcm(sound(400)))
        for _ in range(4):
            await peer.tell("pause", reply="r1")
            waited.append(await peer.frames_before_event())
            await peer.tell("resume", reply="r1")
        await peer.tell("closing", reason="")

    async with server(script) as url, client.call(url, output_hz=RATE_HZ) as caller:
        await caller.wait_for("closing")

    assert max(waited) <= 3  # of 20 ms; the usual reports are 100 ms apart


async def test_a_paused_caller_reports_one_place_and_after_the_resume_the_rest() -> None:
    paused: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.tell("reply_started", reply="r1")
        await peer.socket.send(to_pcm(sound(400)))
        await peer.tell("pause", reply="r1")
        paused.extend([(await peer.event())["ms"] for _ in range(5)])
        await peer.tell("resume", reply="r1")
        while (await peer.event())["ms"] < 400:
            pass
        await peer.tell("reply_done", reply="r1", status="completed", heard="")

    async with server(script) as url, client.call(url, output_hz=RATE_HZ) as caller:
        await caller.wait_for("reply_done")

    assert len(set(paused[1:])) == 1  # the first may have been on its way when the pause came
    assert paused[1] < 200


async def test_a_pause_or_resume_of_another_reply_changes_nothing() -> None:
    async def script(peer: Peer) -> None:
        await peer.tell("reply_started", reply="r1")
        await peer.socket.send(to_pcm(sound(100)))
        await peer.tell("pause", reply="r0")
        while (await peer.event())["ms"] < 100:
            pass
        await peer.socket.send(to_pcm(sound(300)))
        await peer.tell("pause", reply="r1")
        await peer.tell("resume", reply="r0")
        ms = [(await peer.event())["ms"] for _ in range(5)]
        await peer.tell("closing", reason=f"{len(set(ms[1:]))} places")

    async with server(script) as url, client.call(url, output_hz=RATE_HZ) as caller:
        closing = await caller.wait_for("closing")

    assert closing.event is not None
    assert closing.event["reason"] == "1 places"


async def test_a_call_brings_its_resume_token_in_the_query_and_configures_before_any_sound() -> None:
    paths: list[str] = []

    async def script(peer: Peer) -> None:
        assert peer.socket.request is not None
        paths.append(peer.socket.request.path)
        first = await peer.socket.recv()
        await peer.tell("closing", reason=first if isinstance(first, str) else "sound")

    async with (
        server(script) as url,
        client.call(url, configure={"instructions": "Be brief."}, resume="t0ken/+") as caller,
    ):
        closing = await caller.wait_for("closing")

    assert closing.event is not None
    assert json.loads(closing.event["reason"]) == {"type": "configure", "instructions": "Be brief."}
    assert parse_qs(urlsplit(paths[0]).query)["resume"] == ["t0ken/+"]
