"""The caller's sound: from the client's rate to judged frames, and kept for as long as a turn needs it."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.models.vad import FRAME_SAMPLES, RATE_HZ
from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session.echo import ECHO_LIKENESS, EchoGuard
from voice_runtime.session.turn import Input, State
from voice_runtime.session.voice_activity import FRAME_MS, VoiceActivity

REPLYING = (State.THINKING, State.SPEAKING, State.CLOSING)  # there is a reply to hold
JUDGED_S = 8  # Smart Turn looks at so much
LONGEST_WAITING = RATE_HZ  # a caller whose sound comes late in one piece is compared with as much of the agent's
FAR = 10 ** (-16 / 10)  # in power; who speaks softly to interrupt is 10 dB below his usual level, not more
FAR_HISS = 10 ** (-30 / 10)  # an "s" is as much softer than the same mouth's vowels, and echo cancellers add to it
# Mean square of the steps between samples over that of the samples: white noise has 2, vowels 0.1, what comes by
# telephone seldom as much.
HISS = 1.2
LEVEL_FRAMES = 3  # a soft sound between two loud ones is the caller's
LEAST_LEVEL_FRAMES = 500 // FRAME_MS
MOST_LEVEL_FRAMES = 20_000 // FRAME_MS  # so many are averaged: who moves away is known in a turn or two
ECHO_FRAMES = 1_000 // FRAME_MS  # after the agent's last sound


class VoiceDetector(Protocol):
    """One caller's voice detector, as `VadStream` is."""

    def push(self, frame: Samples) -> float:
        """The probability, 0 to 1, that the next 512 samples at 16 kHz hold speech."""
        ...


class _Played:
    """The agent's sound in frames of 512 samples, in step with the caller's; silence where there is none."""

    def __init__(self, output_hz: int) -> None:
        self._resampler = Resampler(output_hz, RATE_HZ)
        self._waiting = np.zeros(0, np.float32)

    def frame(self, pcm: bytes) -> Samples:
        """pcm: what was played since the last frame, 16-bit at the output's rate."""
        waiting = np.concatenate([self._waiting, self._resampler.push(to_samples(pcm))])[-LONGEST_WAITING:]
        frame, self._waiting = waiting[:FRAME_SAMPLES], waiting[FRAME_SAMPLES:]
        return np.pad(frame, (0, FRAME_SAMPLES - len(frame)))


class _Level:
    """How loud this caller is, so that a voice from the next room does not interrupt."""

    def __init__(self) -> None:
        self._power = 0.0  # of the caller's voiced frames, mean
        self._frames = 0
        self._last: deque[float] = deque(maxlen=LEVEL_FRAMES)  # power of the last frames
        self._hisses: deque[float] = deque(maxlen=LEVEL_FRAMES)  # the same; 0 where there was none

    def hear(self, frame: Samples) -> None:
        """A frame of the caller's own turn."""
        self._frames = min(self._frames + 1, MOST_LEVEL_FRAMES)
        self._power += (float(np.square(frame).mean()) - self._power) / self._frames

    def is_far(self, frame: Samples) -> bool:
        """This frame and the ones before are much softer than the caller has been until now.

        What is softer than the hiss before it belongs to it: the "t" of "stop". A far vowel is louder than its "s".
        """
        power = float(np.square(frame).mean())
        is_hiss = float(np.square(np.diff(frame)).mean()) > HISS * power
        self._last.append(power)
        self._hisses.append(power if is_hiss else 0.0)
        hiss = max(self._hisses)
        is_near = max(self._last) >= FAR * self._power or (hiss >= FAR_HISS * self._power and power <= hiss)
        return self._frames >= LEAST_LEVEL_FRAMES and not is_near


class Hearing:
    """One caller's ear. Sans-IO.

    input_hz: rate of what is pushed. output_hz: of what the agent plays. vad: this caller's voice detector.
    tap: gets each frame, and what the agent played meanwhile.
    """

    def __init__(
        self,
        settings: TurnSettings,
        vad: VoiceDetector,
        input_hz: int,
        output_hz: int,
        tap: Callable[[Samples, Samples], None] | None = None,
    ) -> None:
        self.activity = VoiceActivity(settings)
        self._tap = tap
        self._vad = vad
        self._guard = EchoGuard()
        self._level = _Level()
        self._played = _Played(output_hz)
        self._guarded_frames = 0  # for so many more an echo may come
        self._to_vad = Resampler(input_hz, RATE_HZ)
        self._rest = np.zeros(0, np.float32)  # of a frame
        self._pre_roll: deque[Samples] = deque()  # what was heard last outside a turn
        self._turn: list[Samples] = []
        self._unrecognised: list[Samples] = []  # turns whose recognition is under way or was cut off by more speech
        self._pause = 0  # number of the present pause
        self.configure(settings)

    def configure(self, settings: TurnSettings) -> None:
        self.activity.settings = settings
        self._pre_roll = deque(self._pre_roll, 1 + max(1, settings.pre_roll_ms // FRAME_MS))  # and the present frame
        self._longest_frames = (int(settings.longest_turn_s * 1000) + settings.pre_roll_ms) // FRAME_MS

    def frames(self, samples: Samples) -> Iterator[Samples]:
        """Whole frames of 512 samples at 16 kHz; what is left waits for the next samples."""
        pending = np.concatenate([self._rest, self._to_vad.push(samples)])
        whole = len(pending) - len(pending) % FRAME_SAMPLES
        self._rest = pending[whole:]
        for at in range(0, whole, FRAME_SAMPLES):
            yield pending[at : at + FRAME_SAMPLES]

    def push(self, frame: Samples, played: bytes, state: State) -> list[Input]:
        """What a frame means for the turn, in order; the frame is kept when it belongs to one.

        played: what the agent played since the last frame, 16-bit at its rate. state: the turn machine's.
        """
        inputs = self.activity.push(self._probability(frame, played, state), agent_speaks=state in REPLYING)
        self._pre_roll.append(frame)
        if self.activity.in_turn or inputs:
            self._turn += self._pre_roll
            self._pre_roll.clear()
        if Input.SILENCE in inputs:
            self._pause += 1
        return inputs

    def _probability(self, frame: Samples, played: bytes, state: State) -> float:
        """That the caller speaks: the agent's own sound that comes back is silence, and so are others in the room."""
        agent = self._played.frame(played)
        if self._tap is not None:  # of a held reply comes what was given ahead: it is played later, and given again
            self._tap(frame, np.zeros_like(agent) if state is State.HELD else agent)
        probability = self._vad.push(frame)
        if self._is_echo(frame, agent):
            return 0.0
        if state in REPLYING or state is State.HELD:
            return 0.0 if self._level.is_far(frame) else probability
        if self.activity.in_turn and probability >= self.activity.settings.voice_threshold:
            self._level.hear(frame)
        return probability

    def _is_echo(self, frame: Samples, agent: Samples) -> bool:
        if agent.any():
            if self._guarded_frames <= 0:  # what the guard heard last is long ago
                self._guard.reset()
            self._guarded_frames = ECHO_FRAMES
        else:
            self._guarded_frames -= 1
        return self._guarded_frames > 0 and self._guard.push(frame, agent) >= ECHO_LIKENESS

    @property
    def has_unrecognised(self) -> bool:
        """There is sound of an earlier turn that `turn_so_far` begins with."""
        return bool(self._unrecognised)

    def turn_so_far(self) -> bytes:
        """The turn, 16-bit at 16 kHz, with what was said before and is not recognised yet."""
        return to_pcm(np.concatenate((self._unrecognised + self._turn)[-self._longest_frames :]))

    def overlap(self) -> bytes:
        """What was said since the last turn: over the agent's reply."""
        return to_pcm(np.concatenate(self._turn))

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

    def take_turn(self) -> None:
        """End the turn, whose sound is being recognised: `turn_so_far` begins with it until `recognised`."""
        self._unrecognised = (self._unrecognised + self._turn)[-self._longest_frames :]
        self.drop_overlap()

    def recognised(self) -> None:
        """What was taken has become words, or never will."""
        self._unrecognised = []

    def drop(self) -> None:
        """Forget the turn, what is not recognised of it, and the rest of a sentence that is being said."""
        is_speaking = self.activity.in_turn and not self.activity.silence_ms
        self.drop_overlap()
        self.activity.skips_voice = is_speaking
        self._unrecognised = []

    def drop_overlap(self) -> None:
        """Forget what was said since the last turn."""
        self.activity.reset()
        self._turn = []
        self._pre_roll.clear()  # it belongs to this turn: the next one must not have it a second time
        self._pause += 1  # what Smart Turn may still say of the last pause is too late
