"""`voice-runtime talk`: a recorded caller, in real time, against a running or a private server."""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
from websockets.exceptions import WebSocketException

from voice_runtime import assets, client
from voice_runtime.audio import wav
from voice_runtime.audio.pcm import Samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.errors import ConfigError, VoiceRuntimeError
from voice_runtime.models.vad import FRAME_SAMPLES, RATE_HZ, SileroVad
from voice_runtime.pipeline import lifeline

START_S = 180.0  # the first start converts the thinker's weights
ANSWER_S = 90.0  # the longest reply, played to its end
OUTPUT_HZ = 24_000


async def talk(
    recording: Path, out: Path | None, url: str | None, pipeline: Path, show: Callable[[str], None] | None
) -> dict[str, Any]:
    """Play `recording` to a server and take the answer to its end.

    out: where the agent's audio goes. url: a running server; None starts one for this call.
    show: told each event as a line.
    Returns transcript, reply, latency_ms (total and each stage) and underruns. The total is measured here, from the
    last voice in the recording to the first agent audio; the stages are the server's.

    Raises:
        ConfigError: the recording cannot be played. VoiceRuntimeError: the server did not start or did not answer.
    """
    samples, rate_hz = wav.read(recording)
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"{out.parent} is not there, expected a folder to write {out.name} to")
    after_voice_s = silence_at_end_s(samples, rate_hz)
    try:
        async with contextlib.AsyncExitStack() as stack:
            address = await stack.enter_async_context(private_server(pipeline)) if url is None else url
            caller = await stack.enter_async_context(_call(address, rate_hz, show))
            await caller.say(samples)
            voice_end_s = caller.spoken_until_s - after_voice_s
            reply = await _last_reply(caller)
            if out is not None:
                wav.write(out, caller.audio(), OUTPUT_HZ)
            return _result(caller, reply, voice_end_s)
    except (OSError, WebSocketException) as error:
        raise VoiceRuntimeError(f"no answer from the server: {error}") from error


def _call(
    address: str, rate_hz: int, show: Callable[[str], None] | None
) -> contextlib.AbstractAsyncContextManager[client.Caller]:
    listener = (lambda event: show(str(event))) if show is not None else None
    return client.call(address.rstrip("/"), rate_hz, OUTPUT_HZ, listener, os.environ.get("VOICE_RUNTIME_TOKEN"))


async def _last_reply(caller: client.Caller) -> str:
    """Wait for the reply to the recording's last words; its id. A pause in the recording may have got others before."""
    since = 0
    while True:
        done = await caller.wait_for("reply_done", since, timeout_s=ANSWER_S)
        since = caller.received.index(done) + 1
        assert done.event is not None
        started = [event["reply"] for event in caller.events("reply_started")]
        if done.event["reply"] == started[-1] and done.event["status"] != "interrupted":
            break
    if done.event["status"] == "failed":
        told = "; ".join(event["message"] for event in caller.events("error"))
        raise VoiceRuntimeError(f"the reply failed: {told}")
    return str(done.event["reply"])


def silence_at_end_s(samples: Samples, rate_hz: int) -> float:
    """Seconds after the last voice in a recording, by Silero.

    Raises:
        ConfigError: there is no voice in it.
    """
    assets.verify("silero-vad")
    resampler = Resampler(rate_hz, RATE_HZ)
    heard = np.concatenate([resampler.push(samples), resampler.flush()])
    stream = SileroVad(assets.locate("silero-vad")).open()
    frames = [heard[at : at + FRAME_SAMPLES] for at in range(0, len(heard) - FRAME_SAMPLES + 1, FRAME_SAMPLES)]
    voiced = [number for number, frame in enumerate(frames) if stream.push(frame) >= 0.5]
    if not voiced:
        raise ConfigError(f"no voice in {len(heard) / RATE_HZ:.1f} s of recording, expected somebody who speaks")
    return (len(heard) - (voiced[-1] + 1) * FRAME_SAMPLES) / RATE_HZ


@contextlib.asynccontextmanager
async def private_server(pipeline: Path) -> AsyncIterator[str]:
    """Start a server on a free port, for as long as the context is entered; gives ws://host:port.

    Raises:
        VoiceRuntimeError: it ended or was not ready in time.
    """
    command = [sys.executable, "-m", "voice_runtime.cli", "serve", str(pipeline), "--port", "0"]
    environment = {**os.environ, "VOICE_RUNTIME_LOG": "WARNING", lifeline.PARENT: str(os.getpid())}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    try:
        yield await _address(process)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """ws://host:port, once the server says that it is ready."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            async for line in process.stdout:
                if found := re.search(rb"http(://\S+?)/?\s*$", line):
                    return "ws" + found[1].decode()
    except TimeoutError:
        raise VoiceRuntimeError(f"the server was not ready after {START_S:g} s") from None
    raise VoiceRuntimeError(f"the server ended with code {await process.wait()}, expected it to serve")


def _result(caller: client.Caller, reply: str, voice_end_s: float) -> dict[str, Any]:
    since = next(at for at, one in enumerate(caller.received) if one.event == {"type": "reply_started", "reply": reply})
    first = next((one.at_s for one in caller.received[since:] if one.event is None), None)
    timing = (caller.events("timing", since) or [{"ms": {}}])[0]
    stages = {name: ms for name, ms in timing["ms"].items() if name != "total"}
    total = None if first is None else round((first - voice_end_s) * 1000, 1)
    return {
        "transcript": " ".join(event["text"] for event in caller.events("transcript") if event["final"]),
        "reply": "".join(event["text"] for event in caller.events("reply_text", since)).strip(),
        "latency_ms": {"total": total, **stages},
        "underruns": caller.loudspeaker.underruns,
    }
