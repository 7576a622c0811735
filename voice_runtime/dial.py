"""`voice-runtime dial`: a recorded caller who comes by telephone, against a running or a private server."""

import contextlib
import json
import re
import socket
import tempfile
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from websockets.exceptions import WebSocketException

from voice_runtime import talk
from voice_runtime.audio import wav
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.carrier import call as calls
from voice_runtime.carrier.earpiece import sound
from voice_runtime.carrier.leg import Happened
from voice_runtime.carrier.registry import SIDES
from voice_runtime.errors import ConfigError, VoiceRuntimeError

ANSWER_S = 90.0  # until the agent is heard
QUIET_S = 4.0  # of silence after its answer, before the caller hangs up
_TELEPHONY = re.compile(r"^\[+ *telephony *[.\]].*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Plan:
    """A call. keys: pressed when the recording is over. out: where what the caller heard goes, at the call's rate.

    url: of the agent, as the carrier would be told it; None starts a private server. is_mixed: the caller's own voice
    is in `out` too.
    """

    recording: Path
    protocol: str = "twilio"
    url: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    keys: str = ""
    out: Path | None = None
    is_mixed: bool = False


async def dial(plan: Plan, pipeline: Path, show: Callable[[str], None]) -> list[str]:
    """Make the call, in real time; what the agent did that the carrier forbids.

    show: told what happens, as lines.

    Raises:
        ConfigError: the recording cannot be played, or there is no such protocol. VoiceRuntimeError: no answer came.
    """
    samples, rate_hz = wav.read(plan.recording)
    _check(plan)
    try:
        async with contextlib.AsyncExitStack() as stack:
            server = private_server(pipeline, plan.protocol) if plan.url is None else contextlib.nullcontext(plan.url)
            url = await stack.enter_async_context(server)
            show(f"calling {url}")
            call = await stack.enter_async_context(_call(url, plan, show))
            with contextlib.suppress(ConnectionError):  # the agent may hang up at any time
                await _talk(call, samples, rate_hz, plan.keys)
            if call.ended_by is None:
                await call.hang_up()
    except TimeoutError as error:
        raise VoiceRuntimeError(f"no answer: {error}") from error
    except (OSError, WebSocketException) as error:
        raise VoiceRuntimeError(f"no answer from the server: {error}") from error
    if plan.out is not None:
        wav.write(plan.out, to_pcm(_recorded(call, is_mixed=plan.is_mixed)), call.rate_hz)
    show(f"heard {call.leg.earpiece.heard_s:.1f} s, lost {call.line.unheard_s:.1f} s, {len(call.faults)} faults")
    return call.faults


def _check(plan: Plan) -> None:
    if plan.protocol not in SIDES:
        raise ConfigError(f"protocol is {plan.protocol!r}, expected one of {', '.join(SIDES)}")
    if plan.out is not None and not plan.out.parent.is_dir():
        raise ConfigError(f"{plan.out.parent} is not there, expected a folder to write {plan.out.name} to")


def _call(url: str, plan: Plan, show: Callable[[str], None]) -> contextlib.AbstractAsyncContextManager[calls.Call]:
    begin_s: list[float] = []

    def shown(happened: Happened) -> None:
        begin_s.append(happened.at_s)
        show(f"{happened.at_s - begin_s[0]:7.2f} s  {happened.what} {happened.detail}".rstrip())

    return calls.dial(url, plan.protocol, plan.parameters, on_event=shown)


async def _talk(call: calls.Call, samples: Samples, rate_hz: int, keys: str) -> None:
    await call.say(samples, rate_hz)
    await call.press(keys)
    await call.wait_speaking(ANSWER_S)
    await call.wait_silent(QUIET_S, timeout_s=ANSWER_S)


def _recorded(call: calls.Call, *, is_mixed: bool) -> Samples:
    pieces = call.heard + call.line.said
    begin_s = min((piece.at_s for piece in pieces), default=0.0)
    end_s = max((piece.at_s + piece.samples.size / call.rate_hz for piece in pieces), default=0.0)
    line = sound(call.heard, call.rate_hz, begin_s, end_s)
    if is_mixed:
        line = np.clip(line + sound(call.line.said, call.rate_hz, begin_s, end_s), -1, 1)
    return line


@contextlib.asynccontextmanager
async def private_server(pipeline: Path, protocol: str) -> AsyncIterator[str]:
    """Start a server that this carrier may call, for as long as the context is entered; the URL to call.

    Raises:
        ConfigError: the pipeline file cannot be given telephony. VoiceRuntimeError: as `talk.private_server`.
    """
    door = protocol.removesuffix("-json")
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="voice-runtime-dial-") as folder:
        file = Path(folder) / pipeline.name
        file.write_text(with_telephony(pipeline, door, port))
        async with talk.private_server(file) as address:
            yield f"tcp://127.0.0.1:{port}" if door == "audiosocket" else f"{address}/telephony/{door}"


def with_telephony(pipeline: Path, door: str, port: int) -> str:
    """A pipeline file's text, in which this carrier may call from this machine, and no other.

    Raises:
        ConfigError: it cannot be read, or has telephony where it cannot be replaced.
    """
    try:
        text = pipeline.read_text("utf-8")
        before = tomllib.loads(text)
        instructions = before.pop("telephony", {}).get("instructions", "")
        table = f'public_url = "https://localhost"\ninstructions = {json.dumps(instructions, ensure_ascii=False)}\n'
        settings = f"port = {port}\n" if door == "audiosocket" else ""
        text = f"{_TELEPHONY.sub('', text)}\n[telephony]\n{table}\n[telephony.{door}]\n{settings}"
        after = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{pipeline}: {error}, expected a pipeline file; serve it and give its URL") from error
    if {**after, "telephony": None} != {**before, "telephony": None}:
        raise ConfigError(f"{pipeline}: [telephony] cannot be replaced here; serve it and give its URL")
    return text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
