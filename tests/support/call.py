"""A caller, a session and its stages under a clock of the test's own."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from tests.support.clock import Clock
from tests.support.played_stages import Asked, PlayedStages
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.models.vad import FRAME_SAMPLES
from voice_runtime.pipeline.config import SessionSettings, TurnSettings
from voice_runtime.session.events import (
    AgentAudio,
    CallerAudio,
    CallEvent,
    ReplyDone,
    ReplyText,
    SessionEvent,
    Timing,
)
from voice_runtime.session.history import Memory
from voice_runtime.session.session import Session
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import Prompt, SpokenClause, Transcript, Utterance

FRAME_S = 0.032
RATE_HZ = 8_000
SETTINGS = SessionSettings(
    recognise="asr", judge_turn="turn_end", reply="thinker", speak="speech", turn=TurnSettings(draft_silence_ms=128)
)
TURN = "V" * 10 + "." * 25  # 320 ms of speech, and the silence that ends it
DRAFT = "V" * 10 + "." * 4  # the same, and the pause in which the words so far are looked at
Output = SessionEvent | AgentAudio


class Level:
    """Stands in for the voice detector: a frame is speech when it is loud."""

    def push(self, frame: Samples) -> float:
        return 0.9 if np.abs(frame).mean() > 0.1 else 0.1


class Call:
    """A session, its caller and its stages. Every frame of the caller's sound differs from every other.

    said: what the caller has said, frame by frame, silence too. done: what `on_reply_done` was called with.
    """

    def __init__(self, settings: SessionSettings = SETTINGS, memory: Memory | None = None) -> None:
        self.clock = Clock(5_000.0)
        self.stages = PlayedStages(self.clock)
        self.done: list[tuple[ReplyDone, Timing | None]] = []
        self.session = Session(
            self.stages,
            settings,
            Level(),
            16_000,
            RATE_HZ,
            lambda *done: self.done.append(done),
            self.clock,
            memory,
        )
        self.said: list[bytes] = []
        self._look_s = self.clock.now_s  # when a transport that is not woken looks again
        self._noise = np.random.default_rng(1)

    def hear(self, frames: str) -> list[Output]:
        """Frames of 32 ms in real time: V voice, . silence. What the client gets by then."""
        outputs = []
        for letter in frames:
            self.clock.now_s += FRAME_S
            loudness = 0.9 if letter == "V" else 0.001
            frame = self._noise.uniform(-loudness, loudness, FRAME_SAMPLES).astype(np.float32)
            self.said.append(to_pcm(frame))
            self.session.receive(CallerAudio(frame))
            outputs += self.outputs()
        return outputs

    def send(self, event: CallEvent) -> list[Output]:
        self.session.receive(event)
        return self.outputs()

    def outputs(self) -> list[Output]:
        """What a transport would send now: it looks when it is woken or has waited for long enough."""
        outputs: list[Output] = []
        looks = 0
        while self.session.wake.is_set() or self.clock.now_s >= self._look_s:
            self.session.wake.clear()
            while (output := self.session.next_output()) is not None:
                outputs.append(output)
            wait_s = self.session.wait_s()
            looks += 1
            assert looks < 10, "nothing comes, and the session is asked again and again"
            self._look_s = self.clock.now_s + max(wait_s, 1e-4)
        return outputs

    def listen(self, seconds: float) -> list[Output]:
        """What a transport would send in the next seconds if the caller does nothing."""
        end_s, outputs = self.clock.now_s + seconds, self.outputs()
        while (left_s := end_s - self.clock.now_s) > 0:
            self.clock.now_s += min(left_s, self._look_s - self.clock.now_s)
            outputs += self.outputs()
        return outputs

    # The caller's and the stages' ways to a state

    def speak(self) -> Asked:
        """A turn, until it is over and the recogniser has it."""
        self.hear(TURN)
        return self.stages.last("asr")

    def ask(self, text: str = "hello") -> Asked:
        """A recognised turn, until the thinker is asked."""
        self.speak().finish(Transcript(text))
        self.outputs()
        return self.stages.last("thinker")

    def answered(self, text: str = "Hi there. ", ms: int = 1_000) -> Asked:
        """A turn that is answered, until the first 100 ms of the answer are played."""
        thinker = self.ask()
        thinker.bring(spoken(text, ms))
        self.listen(0.1)
        return thinker

    def state(self) -> State:
        return self.session.state

    def prompt(self) -> list[tuple[str, str]]:
        """What the thinker was shown last."""
        payload = self.stages.last("thinker").payload
        assert isinstance(payload, Prompt)
        return [(message.role, message.text) for message in payload.messages]


Way = Callable[[Call], None]


def sound(ms: int, seed: int = 0) -> bytes:
    """No two samples near each other are the same: what is lost, doubled or moved shows."""
    return ((np.arange(RATE_HZ * ms // 1000) * 7 + seed * 1_001) % 30_011).astype("<i2").tobytes()


def spoken(text: str, ms: int) -> SpokenClause:
    return SpokenClause.spread(text, sound(ms), RATE_HZ)


def events(outputs: list[Output]) -> list[SessionEvent]:
    return [output for output in outputs if not isinstance(output, AgentAudio)]


def kinds(outputs: list[Output]) -> list[type[SessionEvent]]:
    return [type(event) for event in events(outputs)]


def captions(outputs: list[Output]) -> str:
    return "".join(output.text for output in outputs if isinstance(output, ReplyText))


def audio(outputs: list[Output]) -> bytes:
    return b"".join(output.pcm for output in outputs if isinstance(output, AgentAudio))


def audio_ms(outputs: list[Output]) -> float:
    return len(audio(outputs)) * 500 / RATE_HZ


def settings(**changes: Any) -> SessionSettings:
    return msgspec.structs.replace(SETTINGS, **changes)


def turn(**changes: Any) -> SessionSettings:
    return settings(turn=msgspec.structs.replace(SETTINGS.turn, **changes))


def utterance(asked: Asked) -> bytes:
    assert isinstance(asked.payload, Utterance)
    return asked.payload.pcm


def frames_of(pcm: bytes) -> list[bytes]:
    size = 2 * FRAME_SAMPLES
    return [pcm[at : at + size] for at in range(0, len(pcm), size)]


def is_loud(frame: bytes) -> bool:
    return bool(np.abs(np.frombuffer(frame, "<i2").astype(np.int32)).mean() > 3_000)


def loud(frames: list[bytes]) -> list[bytes]:
    """Of these the frames that hold voice."""
    return [frame for frame in frames if is_loud(frame)]


# How a call comes into each state


def nothing(call: Call) -> None:
    pass


def hearing(call: Call) -> None:
    call.hear("VVVV")


def paused(call: Call) -> None:
    call.hear("VVVV......")  # the words so far are being recognised, and Smart Turn is asked


def drafting(call: Call) -> None:
    call.hear(DRAFT)
    call.stages.last("asr").finish(Transcript("hello"))
    call.outputs()


def recognising(call: Call) -> None:
    call.speak()


def replying(call: Call) -> None:
    call.ask()


def speaking(call: Call) -> None:
    call.answered()


def held(call: Call) -> None:
    call.answered()
    call.hear("VV")


def judging(call: Call) -> None:
    call.answered()
    call.hear("VVVV....")  # what was said over the reply is being recognised


def held_unanswered(call: Call) -> None:
    call.speak()
    call.hear("VV")


def closing(call: Call) -> None:
    call.listen(5.1)
    call.stages.last("speech").bring(spoken("Goodbye.", 1_000))
    call.listen(0.1)


STATES: dict[Way, State] = {
    nothing: State.LISTENING,
    hearing: State.HEARING,
    paused: State.MAYBE_DONE,
    drafting: State.MAYBE_DONE,
    recognising: State.THINKING,
    replying: State.THINKING,
    speaking: State.SPEAKING,
    held: State.HELD,
    judging: State.HELD,
    held_unanswered: State.HELD,
    closing: State.CLOSING,
}
AGENTS = (State.THINKING, State.SPEAKING, State.HELD, State.CLOSING)
REPLYING = (replying, speaking, held, judging, closing)  # the client knows of a reply


def come(way: Way) -> Call:
    """A call that has come into a state."""
    call = Call(settings(idle_s=5.0, idle_prompts=()) if way is closing else SETTINGS)
    way(call)
    assert call.state() is STATES[way]
    return call
