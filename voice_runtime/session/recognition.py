"""What the recogniser is asked in a session: one piece of sound at a time, of which only the last counts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from voice_runtime.pipeline.runtime import Result
from voice_runtime.schedulers.messages import Finished
from voice_runtime.session.agent import Stages
from voice_runtime.session.reply import Spent
from voice_runtime.stages.payloads import Heard, Transcript, TurnEnd, Utterance


@dataclass(slots=True)
class Words:
    """Words that are known or being recognised.

    request_id: "" once it has ended. voiced_ms: how much voice they cover. spent: where the turn's time went until
    they were known. confidence, weakest: as in `Transcript`. error: why there are none.
    """

    request_id: str
    asked_s: float
    voiced_ms: int
    spent: Spent
    text: str | None = None
    confidence: float = 1.0
    weakest: float = 1.0
    error: str | None = None
    turn_is_over: bool = False


class Recognition:
    """Holds the words of one purpose: the caller's turn, or what was said over a reply.

    stage: the recogniser's. clock: seconds.
    """

    def __init__(self, pipeline: Stages, stage: str, clock: Callable[[], float]) -> None:
        self.words: Words | None = None
        self.then: Callable[[Words], None] = lambda words: None
        self._pipeline = pipeline
        self._stage = stage
        self._clock = clock

    def start(self, pcm: bytes, voiced_ms: int, silence_ms: int, then: Callable[[Words], None]) -> None:
        """Recognise `pcm` in place of what was asked before. `then` gets the words, unless they are dropped.

        voiced_ms, silence_ms: voice in it, and silence after the last of it.
        """
        self.drop()
        self.then = then
        now_s = self._clock()
        spent = Spent(now_s - silence_ms / 1000, {"pause": float(silence_ms)})
        words = self.words = Words(self._pipeline.new_id(), now_s, voiced_ms, spent)

        def recognised(result: Result) -> None:
            if words is not self.words:
                return
            words.request_id = ""
            words.spent.ms[self._stage] = (self._clock() - words.asked_s) * 1000
            if isinstance(result, Finished) and isinstance(result.result, Transcript):
                transcript = result.result
                words.text, words.confidence, words.weakest = (
                    transcript.text,
                    transcript.confidence,
                    transcript.weakest,
                )
            else:
                words.text, words.error = "", str(getattr(result, "error", result))
            self.then(words)

        marks = self._pipeline.submit(self._stage, words.request_id, Utterance(pcm), recognised)
        words.spent = replace(spent, marks=marks)

    def covers(self, voiced_ms: int) -> bool:
        """All voice so far is in the present words."""
        return self.words is not None and self.words.voiced_ms == voiced_ms

    def unread_ms(self, voiced_ms: int) -> int:
        """How much of the voice so far is in no words.

        0 while the recogniser is at work: one that is slower than the caller speaks would never come to an end.
        """
        if self.words is None:
            return voiced_ms
        return voiced_ms - self.words.voiced_ms if self.words.text is not None else 0

    def take(self) -> Words | None:
        """The present words, which are then another's."""
        words, self.words = self.words, None
        return words

    def drop(self) -> None:
        if (words := self.take()) is not None and words.request_id:
            self._pipeline.abort(words.request_id)


class TurnEndJudge:
    """Smart Turn, asked of one pause at a time. stage: None when the pipeline has none; then nothing is asked."""

    def __init__(self, pipeline: Stages, stage: str | None) -> None:
        self._pipeline = pipeline
        self._stage = stage
        self._request_id: str | None = None

    def ask(self, pcm: bytes, then: Callable[[float], None]) -> None:
        """pcm: the last seconds before the pause. then: gets the probability that the turn is over."""
        self.drop()
        if self._stage is None:
            return

        def judged(result: Result) -> None:
            if isinstance(result, Finished) and isinstance(result.result, TurnEnd):
                then(result.result.probability)

        self._request_id = self._pipeline.new_id()
        self._pipeline.submit(self._stage, self._request_id, Heard(pcm), judged)

    def drop(self) -> None:
        if self._request_id is not None:
            self._pipeline.abort(self._request_id)  # nothing, if it has ended
            self._request_id = None
