"""The caller's sound: from the client's rate to judged frames, and kept for as long as a turn needs it."""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.audio.resample import Resampler
from voice_runtime.models.vad import FRAME_SAMPLES, RATE_HZ
from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session.turn import Input
from voice_runtime.session.voice_activity import FRAME_MS, VoiceActivity

JUDGED_S = 8  # Smart Turn looks at so much


class VoiceDetector(Protocol):
    """One caller's voice detector, as `VadStream` is."""

    def push(self, frame: Samples) -> float:
        """The probability, 0 to 1, that the next 512 samples at 16 kHz hold speech."""
        ...


class Hearing:
    """One caller's ear. Sans-IO.

    input_hz: rate of what is pushed. vad: this caller's voice detector.
    """

    def __init__(self, settings: TurnSettings, vad: VoiceDetector, input_hz: int) -> None:
        self.activity = VoiceActivity(settings)
        self._vad = vad
        self._to_vad = Resampler(input_hz, RATE_HZ)
        self._rest = np.zeros(0, np.float32)  # of a frame
        self._pre_roll: deque[Samples] = deque(maxlen=max(1, settings.pre_roll_ms // FRAME_MS))
        self._longest_frames = (int(settings.longest_turn_s * 1000) + settings.pre_roll_ms) // FRAME_MS
        self._turn: list[Samples] = []
        self._unrecognised: list[Samples] = []  # turns whose recognition is under way or was cut off by more speech
        self._pause = 0  # number of the present pause

    def frames(self, samples: Samples) -> Iterator[Samples]:
        """Whole frames of 512 samples at 16 kHz; what is left waits for the next samples."""
        pending = np.concatenate([self._rest, self._to_vad.push(samples)])
        whole = len(pending) - len(pending) % FRAME_SAMPLES
        self._rest = pending[whole:]
        for at in range(0, whole, FRAME_SAMPLES):
            yield pending[at : at + FRAME_SAMPLES]

    def push(self, frame: Samples, *, agent_speaks: bool) -> list[Input]:
        """What a frame means for the turn, in order; the frame is kept when it belongs to one."""
        inputs = self.activity.push(self._vad.push(frame), agent_speaks=agent_speaks)
        if Input.VOICE in inputs and not self._turn:
            self._turn = list(self._pre_roll)
        if self.activity.in_turn or inputs:
            self._turn.append(frame)
        self._pre_roll.append(frame)
        if Input.SILENCE in inputs:
            self._pause += 1
        return inputs

    def pause(self) -> tuple[int, bytes] | None:
        """When the last frame is the one in which Smart Turn should be asked: the pause's number and what to judge."""
        if not self.activity.asks:
            return None
        return self._pause, to_pcm(np.concatenate(self._turn[-JUDGED_S * 1000 // FRAME_MS :]))

    def judged(self, pause: int, probability: float) -> list[Input]:
        """Smart Turn's answer; of a pause that is over it means nothing."""
        return self.activity.judged(probability) if pause == self._pause else []

    @property
    def holds_long_turn(self) -> bool:
        """What waits for recognition is so long that more would not fit beside it."""
        return 2 * len(self._unrecognised) > self._longest_frames

    def take_turn(self) -> bytes:
        """End the turn: its sound, 16-bit at 16 kHz, with what was said before and is not recognised yet."""
        self._unrecognised = (self._unrecognised + self._turn)[-self._longest_frames :]
        self._end()
        return to_pcm(np.concatenate(self._unrecognised))

    def recognised(self) -> None:
        """What was taken has become words, or never will."""
        self._unrecognised = []

    def drop(self) -> None:
        """Forget the turn."""
        self._end()
        self._unrecognised = []

    def _end(self) -> None:
        self.activity.reset()
        self._turn = []
        self._pre_roll.clear()  # it belongs to this turn: the next one must not have it a second time
        self._pause += 1  # what Smart Turn may still say of the last pause is too late
