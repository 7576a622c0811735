"""A telephone call of a session: a carrier's messages in, commands out. Knows no carrier: that is the codec's part."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from voice_runtime.audio import g711
from voice_runtime.audio.conceal import Concealer
from voice_runtime.audio.pcm import PcmReader, Samples
from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.transports.common import EVENT_S, Allowance, HungUp, carry, outputs, wait
from voice_runtime.gateway.transports.phone_line import PhoneLine
from voice_runtime.session.events import (
    AgentAudio,
    CallerAudio,
    Closing,
    Digit,
    Flush,
    Pause,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Resume,
    SessionEvent,
    TypedText,
)
from voice_runtime.session.session import Session

logger = logging.getLogger(__name__)
# Of a line that cannot take back what it was sent: what is in it sounds on when the caller interrupts.
SHORT_LEAD_MS = 60
DIGITS_S = 2.0  # after the last key
MOST_DIGITS = 32
MOST_COMMANDS = 5_000  # that wait for the carrier
PLAY_OUT_S = 2.0  # longest wait for the mark after a goodbye
DISTANCE_S = 0.3  # the same where there are no marks: what may be on its way to the carrier
SLICE_S = 0.25  # as for /v1/pcm: some carriers send that much at once


class Link(Protocol):
    """A carrier's connection, whatever it is made of."""

    async def receive(self) -> base.Wire:
        """Raises HungUp when it has ended."""

    async def send(self, message: base.Wire) -> None: ...


@dataclass(slots=True)
class Keypad:
    """Digits to what they say: until a pause, or #."""

    digits: str = ""
    last_s: float = 0.0

    def press(self, digit: str, now_s: float) -> str | None:
        """The whole of it, when this key ends it."""
        if digit != "#" and len(self.digits) < MOST_DIGITS:
            self.digits, self.last_s = self.digits + digit, now_s
            return None
        return self.take()

    def take(self) -> str | None:
        said, self.digits = self.digits, ""
        return said or None

    def wait_s(self, now_s: float) -> float:
        return max(0.0, self.last_s + DIGITS_S - now_s) if self.digits else float("inf")


class CarrierAudio:
    """The caller's bytes to samples, across messages of any length."""

    def __init__(self, audio: base.AudioFormat) -> None:
        self._encoding = audio.encoding
        self._reader = PcmReader()
        self._concealer = Concealer(audio.rate_hz)

    def samples(self, event: base.Audio | base.Lost) -> Samples:
        """float32, shape (T,), at the call's rate."""
        if isinstance(event, base.Lost):
            return self._concealer.fill(event.ms)
        if self._encoding == "l16":
            return self._concealer.push(self._reader.push(event.data))
        return self._concealer.push(g711.decode(event.data, self._encoding))


def encoder(audio: base.AudioFormat) -> Callable[[bytes], bytes]:
    """16-bit PCM to the call's encoding."""
    law = audio.encoding
    return bytes if law == "l16" else lambda pcm: g711.encode_pcm(pcm, law)


def lead_ms(codec: base.CarrierCodec) -> int | None:
    """How far ahead of play-out a session may send to such a carrier; None: as its settings say."""
    return None if codec.abilities.clear or codec.abilities.pause else SHORT_LEAD_MS


@dataclass(slots=True)
class Limits:
    """send_s: a carrier that takes nothing for so long is dropped. call_s: longest call."""

    send_s: float
    call_s: float


class PhoneCall:
    """One call, from its start to its end."""

    def __init__(self, link: Link, codec: base.CarrierCodec, started: base.Started, session: Session) -> None:
        self.codec = codec
        self.started = started
        self._link = link
        self._session = session
        self._caller = CarrierAudio(started.audio)
        self._line = PhoneLine(started.audio, codec.abilities, encoder(started.audio))
        self._keypad = Keypad()
        self._commands: asyncio.Queue[base.Command] = asyncio.Queue()
        self._stirred = asyncio.Event()  # what is waited for by the clock may have changed
        self._is_paused = False
        self._paused_ms = 0.0  # of the reply, heard when it was paused

    def hang_up(self) -> None:
        """End the call, at the agent's wish: at once."""
        self._commands.put_nowait(base.HangUp())

    async def serve(self, limits: Limits, events: Iterable[base.CarrierEvent]) -> str:
        """Carry the call until one side ends it; why it ended. events: those that came with its start."""
        work = (self._read(list(events)), self._follow(), self._send(limits.send_s), self._watch_clock())
        ended = await carry(self._session, limits.call_s, *work)
        return ended.code if isinstance(ended, PeerError) else str(ended)

    async def _read(self, events: list[base.CarrierEvent]) -> None:
        sound = Allowance("too_much_audio", time.monotonic())
        others = Allowance("too_many_events", time.monotonic())
        while True:
            for event in events:
                if isinstance(event, base.Audio | base.Lost):
                    await self._hear(self._caller.samples(event), sound)
                else:
                    others.take(EVENT_S, time.monotonic())
                    self._take(event)
            events = self.codec.receive(await self._link.receive())

    async def _hear(self, samples: Samples, allowance: Allowance) -> None:
        rate_hz = self.started.audio.rate_hz
        allowance.take(max(0.001, samples.size / rate_hz), time.monotonic())
        size = int(rate_hz * SLICE_S)
        for at in range(0, samples.size, size):
            self._session.receive(CallerAudio(samples[at : at + size]))
            await asyncio.sleep(0)  # the other sessions' frames go in between

    def _take(self, event: base.CarrierEvent) -> None:
        match event:
            case base.MarkReached(name):
                if (played := self._line.reached(name)) is not None:
                    self._session.receive(played)
            case base.Digit(digit):
                self._session.receive(Digit(digit))
                self._type(self._keypad.press(digit, time.monotonic()))
            case base.Flow(may_send):
                self._give(self._line.flow(may_send=may_send))
            case base.Stopped(reason):
                raise HungUp(reason or "hung_up")
        self._stirred.set()

    def _type(self, digits: str | None) -> None:
        if digits is not None:
            self._session.receive(TypedText(f"I have pressed {' '.join(digits)} on my telephone."))

    async def _follow(self) -> None:
        async for output in outputs(self._session):
            self._steer(output)
            self._stirred.set()
            if isinstance(output, Closing):
                await self._play_out()
                self._commands.put_nowait(base.HangUp())
                return

    async def _play_out(self) -> None:
        """Until the carrier has played all, too: the session's ledger does not know how far away it is."""
        self._give(self._line.quiet())
        if not self.codec.abilities.marks:
            await asyncio.sleep(DISTANCE_S)
            return
        try:
            async with asyncio.timeout(PLAY_OUT_S):
                while not self._line.is_played:
                    self._stirred.clear()
                    await self._stirred.wait()
        except TimeoutError:
            logger.info("a carrier has not told within %g s that it has played the goodbye", PLAY_OUT_S)

    def _steer(self, output: SessionEvent | AgentAudio) -> None:
        match output:
            case AgentAudio(_, pcm):
                self._give(self._line.frame(pcm, time.monotonic()))
            case ReplyStarted(reply):
                self._is_paused = False
                self._give(self._line.begin(reply))
            case ReplyText():
                self._give(self._line.word())
            case Pause():
                self._is_paused, self._paused_ms = True, self._session.heard_ms
                self._give(self._line.pause())
            case Resume():
                self._is_paused = False
                self._give(self._line.resume(self._paused_ms, time.monotonic()))
            case ReplyDone():
                self._give(self._line.quiet())
            case Flush():
                self._give(self._line.flush(was_paused=self._is_paused))
                self._is_paused = False

    def _give(self, commands: list[base.Command]) -> None:
        """Raises PeerError: slow_client."""
        for command in commands:
            self._commands.put_nowait(command)
        if self._commands.qsize() > MOST_COMMANDS:
            raise PeerError("slow_client", f"{self._commands.qsize()} messages wait, expected {MOST_COMMANDS} at most")

    async def _send(self, send_s: float) -> None:
        while True:
            command = await self._commands.get()
            try:
                async with asyncio.timeout(send_s):
                    for message in self.codec.send(command):
                        await self._link.send(message)
            except TimeoutError:
                raise PeerError("slow_client", f"carrier took nothing for {send_s:g} s") from None
            if isinstance(command, base.HangUp):
                raise HungUp("goodbye")

    async def _watch_clock(self) -> None:
        """What comes when nothing comes: a short rest of a reply, and the end of a row of digits."""
        while True:
            self._stirred.clear()
            now_s, heard_ms = time.monotonic(), self._session.heard_ms
            if self._line.wait_s(now_s, heard_ms) <= 0:
                self._give(self._line.quiet())
            if self._keypad.wait_s(now_s) <= 0:
                self._type(self._keypad.take())
            await wait(self._stirred, min(self._line.wait_s(now_s, heard_ms), self._keypad.wait_s(now_s)))
