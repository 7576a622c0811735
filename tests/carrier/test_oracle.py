"""The carrier's side against bots made with another framework's serializers: neither knows our codecs."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pipecat.frames.frames import (
    InputAudioRawFrame,
    InputDTMFFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer
from websockets.asyncio.server import ServerConnection, serve

from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.carrier.base import Wire
from voice_runtime.carrier.call import dial

RATES_HZ = {"twilio": 8_000, "telnyx": 8_000, "plivo": 8_000, "exotel": 8_000, "vonage": 16_000}
SPOKEN_S = 0.4


def twilio(start: dict[str, Any]) -> FrameSerializer:
    params = TwilioFrameSerializer.InputParams(auto_hang_up=False)
    return TwilioFrameSerializer(start["start"]["streamSid"], start["start"]["callSid"], params=params)


def telnyx(start: dict[str, Any]) -> FrameSerializer:
    params = TelnyxFrameSerializer.InputParams(auto_hang_up=False)
    encoding = start["start"]["media_format"]["encoding"]
    return TelnyxFrameSerializer(start["stream_id"], encoding, encoding, params=params)


def plivo(start: dict[str, Any]) -> FrameSerializer:
    params = PlivoFrameSerializer.InputParams(auto_hang_up=False)
    return PlivoFrameSerializer(start["start"]["streamId"], start["start"]["callId"], params=params)


def exotel(start: dict[str, Any]) -> FrameSerializer:
    return ExotelFrameSerializer(start["start"]["stream_sid"], start["start"]["call_sid"])


def vonage(start: dict[str, Any]) -> FrameSerializer:
    assert start["content-type"] == "audio/l16;rate=16000"
    return VonageFrameSerializer()


MAKERS: dict[str, Callable[[dict[str, Any]], FrameSerializer]] = {
    "twilio": twilio,
    "telnyx": telnyx,
    "plivo": plivo,
    "exotel": exotel,
    "vonage": vonage,
}
STARTS = ("start", "websocket:connected")


class Bot:
    """Says what it has heard when 1 is pressed, and falls silent at 2.

    sound: the caller's. piece_s: of its messages; Vonage wants 20 ms, Exotel 200 at least.
    """

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.rate_hz = RATES_HZ[protocol]
        self.sound = b""
        self.keys: list[str] = []
        self.piece_s = 0.02 if protocol == "vonage" else 0.2

    async def answer(self, socket: ServerConnection) -> None:
        serializer: FrameSerializer | None = None
        async for message in socket:
            if serializer is None:
                found = json.loads(message)
                if found["event"] in STARTS:
                    serializer = MAKERS[self.protocol](found)
                    setup = SimpleNamespace(audio_in_sample_rate=self.rate_hz)
                    await serializer.setup(cast(FrameProcessorSetup, setup))
                continue
            await self._take(socket, serializer, message)

    async def _take(self, socket: ServerConnection, serializer: FrameSerializer, message: Wire) -> None:
        match await serializer.deserialize(message):
            case InputAudioRawFrame(audio=pcm):
                self.sound += pcm
            case InputDTMFFrame(button=button):
                self.keys.append(button.value)
                for answer in await self._answers(serializer, button.value):
                    await socket.send(answer)

    async def _answers(self, serializer: FrameSerializer, key: str) -> list[Wire]:
        if key == "2":
            frames: list[Any] = [InterruptionFrame()]
        elif key == "3":
            frames = [OutputTransportMessageFrame(message={"event": "nonsense"})]
        else:
            loud = np.flatnonzero(np.abs(to_samples(self.sound)) > 0.05)
            size = 2 * int(self.rate_hz * self.piece_s)
            length = 2 * int(self.rate_hz * SPOKEN_S)
            sound = self.sound[2 * loud[0] :][:length].ljust(length, b"\0") * 5
            pieces = [sound[at : at + size] for at in range(0, len(sound), size)]
            frames = [OutputAudioRawFrame(piece, self.rate_hz, 1) for piece in pieces]
        answers = [await serializer.serialize(frame) for frame in frames]
        return [answer for answer in answers if answer is not None]


@contextlib.asynccontextmanager
async def answering(protocol: str) -> AsyncIterator[tuple[Bot, str]]:
    bot = Bot(protocol)
    async with serve(bot.answer, "localhost", 0) as server:
        yield bot, f"ws://localhost:{next(iter(server.sockets)).getsockname()[1]}"


def pitch(samples: Samples, rate_hz: int) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(samples * np.hanning(samples.size)))) * rate_hz / samples.size)


@pytest.mark.parametrize("protocol", MAKERS)
async def test_a_bot_of_another_framework_is_heard_and_interrupted_and_hears_the_caller(protocol: str) -> None:
    async with answering(protocol) as (bot, url), dial(url, protocol, {"agent": "booking"}) as call:
        rate_hz = 24_000
        said = 0.4 * np.sin(2 * np.pi * 600 * np.arange(int(SPOKEN_S * rate_hz)) / rate_hz)
        await call.say(said.astype(np.float32), rate_hz)
        await call.press("1")
        await call.wait_heard(SPOKEN_S)
        heard = np.concatenate([piece.samples for piece in call.heard])[: int(SPOKEN_S * call.rate_hz)]
        assert pitch(heard, call.rate_hz) == pytest.approx(600, abs=5)
        assert np.sqrt(np.mean(np.square(heard))) == pytest.approx(0.4 / np.sqrt(2), rel=0.05)
        assert call.leg.earpiece.queued_s > SPOKEN_S
        await call.press("2")
        cleared_s = await call.wait_for("clear")
        await call.wait_silent(0.1)
        assert call.leg.earpiece.silent_since_s <= cleared_s + 0.001
        assert call.leg.earpiece.heard_s < 5 * SPOKEN_S
        assert bot.keys == ["1", "2"]
        assert call.faults == []
        await call.press("3")
        await call.wait_for("fault")
        assert "nonsense" in call.faults[0] or protocol == "vonage"


async def test_what_exotel_would_refuse_of_the_other_framework_is_a_fault() -> None:
    async with answering("exotel") as (bot, url), dial(url, "exotel") as call:
        bot.sound, bot.piece_s = to_pcm(np.full(800, 0.5, np.float32)), 0.02
        await call.press("1")
        await call.wait_for("fault")
        assert "3200" in call.faults[0]
