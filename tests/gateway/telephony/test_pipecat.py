"""The codecs against pipecat's serializers: on the wire they say the same and understand the same.

pipecat is an oracle here and nothing else. Its serializers need packages that its weights do not: requirements/dev.txt.
"""

import importlib
import json
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from tests.gateway.telephony import transcripts
from voice_runtime.audio import g711
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.registry import CODECS, detect

RATES_HZ = {"twilio": 8_000, "telnyx": 8_000, "plivo": 8_000, "exotel": 8_000, "vonage": 16_000}
MESSAGE_BYTES = {"twilio": 160, "telnyx": 160, "plivo": 160, "exotel": 3_200, "vonage": 640}  # of the caller's sound
NAMES = sorted(RATES_HZ)
# 100 ms or more on the grid of mu-law, where rounding is no question. Without mu-law's -0, which encodes as 0.
CODES = bytes(code for code in range(256) if code != 0x7F) * 7
CODES += CODES[: -len(CODES) % 1_600]


class Oracle:
    """pipecat's side of one call, as a bot that hears and speaks at the carrier's own rate."""

    def __init__(self, name: str, stream: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of audioop, and what else it imports
            self._frames = importlib.import_module("pipecat.frames.frames")
            module = importlib.import_module(f"pipecat.serializers.{name}")
        make = getattr(module, f"{name.capitalize()}FrameSerializer")
        self._rate_hz = RATES_HZ[name]
        params: dict[str, Any] = {"sample_rate": self._rate_hz}
        if name != "exotel" and name != "vonage":
            params["auto_hang_up"] = False
        arguments = {"telnyx": (stream, "PCMA", "PCMA"), "vonage": ()}.get(name, (stream,))
        self._serializer = make(*arguments, params=make.InputParams(**params))

    async def ready(self) -> None:
        await self._serializer.setup(SimpleNamespace(audio_in_sample_rate=self._rate_hz))

    async def say(self, pcm: bytes) -> base.Wire:
        frame = self._frames.OutputAudioRawFrame(audio=pcm, sample_rate=self._rate_hz, num_channels=1)
        said: base.Wire = await self._serializer.serialize(frame)
        return said

    async def interrupt(self) -> base.Wire:
        said: base.Wire = await self._serializer.serialize(self._frames.InterruptionFrame())
        return said

    async def hear(self, message: base.Wire) -> base.CarrierEvent | None:
        frame = await self._serializer.deserialize(message)
        if isinstance(frame, self._frames.InputAudioRawFrame):
            return base.Audio(frame.audio)
        return base.Digit(frame.button.value) if isinstance(frame, self._frames.InputDTMFFrame) else None


async def a_call(name: str) -> tuple[Oracle, base.CarrierCodec, base.Started]:
    """Both sides after the recorded start of a call."""
    pytest.importorskip("wait_for2", reason="pipecat's serializers are for make test, see requirements/dev.txt")
    codec = CODECS[name]()
    (started,) = next(events for line in transcripts.heard(name) if (events := codec.receive(line.message)))
    assert isinstance(started, base.Started)
    oracle = Oracle(name, started.stream_id)
    await oracle.ready()
    return oracle, codec, started


def parsed(message: base.Wire) -> object:
    return json.loads(message) if isinstance(message, str) else message


def in_encoding(pcm: bytes, audio: base.AudioFormat) -> bytes:
    return pcm if audio.encoding == "l16" else g711.encode_pcm(pcm, audio.encoding)


@pytest.mark.parametrize("name", NAMES)
async def test_sound_goes_out_as_pipecat_sends_it(name: str) -> None:
    oracle, codec, started = await a_call(name)
    pcm = g711.decode_pcm(CODES, "alaw" if name == "telnyx" else "mulaw")
    said = codec.send(base.Play(in_encoding(pcm, started.audio)))
    expected = await oracle.say(pcm)
    if isinstance(expected, bytes):
        assert b"".join(message for message in said if isinstance(message, bytes))[: len(expected)] == expected
    else:
        assert [parsed(message) for message in said] == [parsed(expected)]


@pytest.mark.parametrize("name", NAMES)
async def test_what_pipecat_sends_to_interrupt_is_our_clear(name: str) -> None:
    oracle, codec, _ = await a_call(name)
    assert [parsed(message) for message in codec.send(base.Clear())] == [parsed(await oracle.interrupt())]


@pytest.mark.parametrize("name", NAMES)
async def test_sound_and_keys_are_heard_as_pipecat_hears_them(name: str) -> None:
    oracle, _, started = await a_call(name)
    compared = {base.Audio: 0, base.Digit: 0}
    for line in transcripts.heard(name):
        theirs = None if '"dtmf": "' in str(line.message) else await oracle.hear(line.message)  # older Vonage: a string
        if not theirs or len(line.events) != 1 or is_cut_otherwise(line.events[0], name):
            continue
        assert [theirs] == [in_pcm(event, started.audio) for event in line.events]
        compared[type(theirs)] += 1
    assert all(compared.values())


def is_cut_otherwise(event: base.CarrierEvent, name: str) -> bool:
    """Telnyx's chunks that came together once they were in order, and odd bytes: pipecat sorts and keeps neither."""
    return isinstance(event, base.Audio) and len(event.data) != MESSAGE_BYTES[name]


def in_pcm(event: base.CarrierEvent, audio: base.AudioFormat) -> base.CarrierEvent:
    if isinstance(event, base.Audio) and audio.encoding != "l16":
        return base.Audio(g711.decode_pcm(event.data, audio.encoding))
    return event


@pytest.mark.parametrize("name", ["exotel", "plivo", "telnyx", "twilio"])
def test_a_call_is_detected_as_pipecat_detects_it(name: str) -> None:
    pytest.importorskip("wait_for2", reason="pipecat's serializers are for make test, see requirements/dev.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = importlib.import_module("pipecat.runner.utils")
    start = next(line.message for line in transcripts.heard(name) if '"event": "start"' in str(line.message))
    assert runner._detect_transport_type_from_message(parsed(start)) == name
    assert detect(start) is CODECS[name]
