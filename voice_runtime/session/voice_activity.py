"""From voice probabilities to the turn machine's inputs. Sans-IO; time is the caller's own audio."""

from dataclasses import dataclass

from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session.turn import Input

FRAME_MS = 32  # what Silero judges at once


@dataclass(slots=True)
class VoiceActivity:
    """Debounces the frames and measures the silence that ends a turn.

    A frame is voice from `voice_threshold` on, silence below `quiet_threshold`, and as the one before in between.
    voiced_ms: voice since the turn began, silences left out. awaits_words: `read` will tell what the words before the
    pause want; until then Smart Turn alone does not end the turn.
    """

    settings: TurnSettings
    in_turn: bool = False  # the caller has begun and the turn is not over
    silence_ms: int = 0  # since the last voice, within the turn
    turn_ms: int = 0
    voiced_ms: int = 0
    awaits_words: bool = False
    skips_voice: bool = False  # of the present sound nothing is wanted any more; the next begins after a pause
    _is_voice: bool = False
    _run_ms: int = 0  # voice before the onset; a dropped frame costs only its own length
    _likely_complete: bool = False
    _unfinished: bool = False

    def push(self, probability: float, *, agent_speaks: bool) -> list[Input]:
        """One frame of 32 ms; what it means, in order."""
        self._classify(probability)
        if not self.in_turn:
            return self._before_turn(agent_speaks)
        return self._within_turn()

    def judged(self, probability: float) -> list[Input]:
        """Smart Turn has judged the pause: it may end the turn early."""
        if not self.silence_ms:  # the pause is over already
            return []
        self._likely_complete = probability >= self.settings.complete_probability
        return self._judged()

    def read(self, *, unfinished: bool) -> list[Input]:
        """The words before the pause are known: when they want more, it takes longer to end the turn."""
        if not self.silence_ms:
            return []
        self._unfinished, self.awaits_words = unfinished, False
        return self._judged()

    @property
    def asks(self) -> bool:
        """True in the one frame of each pause in which Smart Turn should be asked."""
        return self.in_turn and self._reaches(self.settings.ask_silence_ms)

    def stalled(self) -> list[Input]:
        """No audio comes any more: that is silence."""
        return self._over() if self.in_turn else []

    def reset(self) -> None:
        """The turn is over or forgotten."""
        self.in_turn = self._is_voice = self._likely_complete = self._unfinished = self.awaits_words = False
        self.silence_ms = self.turn_ms = self.voiced_ms = self._run_ms = 0

    def _classify(self, probability: float) -> None:
        if probability >= self.settings.voice_threshold:
            self._is_voice = True
        elif probability < self.settings.quiet_threshold:
            self._is_voice = False

    def _before_turn(self, agent_speaks: bool) -> list[Input]:
        if self.skips_voice:
            self.silence_ms = 0 if self._is_voice else self.silence_ms + FRAME_MS
            self.skips_voice = self.silence_ms < self.settings.draft_silence_ms
            return []
        self._run_ms = self._run_ms + FRAME_MS if self._is_voice else max(0, self._run_ms - FRAME_MS)
        needed_ms = self.settings.hold_ms if agent_speaks else self.settings.onset_ms
        if not self._is_voice or self._run_ms < needed_ms:
            return []
        self.in_turn = True
        self.voiced_ms += self._run_ms  # over a reply, a turn that was over and is not judged yet may go on
        self._end_pause()
        return [Input.VOICE]

    def _within_turn(self) -> list[Input]:
        self.turn_ms += FRAME_MS
        was_silent = self.silence_ms > 0
        if self._is_voice:
            self.voiced_ms += FRAME_MS
            self._end_pause()
        else:
            self.silence_ms += FRAME_MS
        if self.silence_ms >= self._needed_ms() or self.turn_ms >= self.settings.longest_turn_s * 1000:
            return self._over()
        if self._is_voice:
            return [Input.VOICE] if was_silent else []
        silence = [] if was_silent else [Input.SILENCE]
        return [*silence, Input.PAUSE] if self._reaches(self.settings.draft_silence_ms) else silence

    def _reaches(self, milliseconds: int) -> bool:
        """The present frame is the one in which the pause becomes so long."""
        return self.silence_ms - FRAME_MS < milliseconds <= self.silence_ms

    def _needed_ms(self) -> int:
        if self._unfinished:
            return self.settings.unfinished_silence_ms
        is_sure = self._likely_complete and not self.awaits_words
        return self.settings.likely_end_silence_ms if is_sure else self.settings.end_silence_ms

    def _judged(self) -> list[Input]:
        over = self.in_turn and self.silence_ms >= self._needed_ms()
        return self._over() if over else []

    def _end_pause(self) -> None:
        self.silence_ms = 0
        self._likely_complete = self._unfinished = self.awaits_words = False

    def _over(self) -> list[Input]:
        self.in_turn, self._run_ms = False, 0
        return [Input.TURN_OVER]
