"""What is said over a reply, until it is known whether it means to interrupt."""

from collections.abc import Callable
from typing import Protocol

from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session.barge_in import interrupts, may_become_interruption
from voice_runtime.session.hearing import Hearing
from voice_runtime.session.recognition import Recognition, Words
from voice_runtime.session.turn import Input


class _Replies(Protocol):
    @property
    def was_heard(self) -> bool: ...


class Overlap:
    """Sans-IO; the caller brings the time.

    recognition: for these words alone. replies: whether anything of the reply was heard. apply: the verdict, YIELD or
    KEEP. note: for the timeline.
    """

    def __init__(
        self,
        recognition: Recognition,
        hearing: Hearing,
        replies: _Replies,
        apply: Callable[[Input], None],
        note: Callable[..., None],
    ) -> None:
        self._recognition = recognition
        self._hearing = hearing
        self._replies = replies
        self._apply = apply
        self._note = note
        self._since_s: float | None = None  # when the reply was held

    def begin(self, now_s: float) -> None:
        self._since_s = now_s

    def due_s(self) -> float:
        """When a reply that is still held goes on; inf when none is held or the caller speaks.

        A gap between two words is no silence: only a pause, after which the words are judged.
        """
        activity = self._hearing.activity
        is_silent = activity.silence_ms >= self._settings.draft_silence_ms or not activity.in_turn
        return self._since_s + self._settings.interrupt_ms / 1000 if self._since_s and is_silent else float("inf")

    def check(self, now_s: float) -> None:
        """A recogniser that does not answer must not keep the agent silent."""
        if now_s >= self.due_s():
            self._apply(Input.KEEP)

    def listen(self) -> None:
        """While the voice goes on: its words so far, or its length, may show that it means to interrupt.

        After it: of words that were not clear more may have come, until now.
        """
        voiced_ms = self._hearing.activity.voiced_ms
        if voiced_ms >= self._settings.interrupt_ms:
            self._recognition.drop()
            self._apply(Input.YIELD)
        elif self._recognition.unread_ms(voiced_ms) >= self._settings.judge_ms or self._has_waited:
            self.judge()

    def judge(self) -> None:
        """Recognise what was said so far, unless its words are known already."""
        activity, words = self._hearing.activity, self._recognition.words
        if words is None or not self._recognition.covers(activity.voiced_ms):
            self._recognition.start(self._hearing.overlap(), activity.voiced_ms, activity.silence_ms, self._judged)
        elif words.text is not None:
            self._judged(words)

    def take_words(self) -> Words | None:
        """What was judged, if it is all that was said: it need not be recognised again."""
        words = self._recognition.words if self._recognition.covers(self._hearing.activity.voiced_ms) else None
        if words is None or not words.text or self._hearing.has_unrecognised:
            return None
        return self._recognition.take()

    def drop(self) -> None:
        self._recognition.drop()
        self._since_s = None

    @property
    def _settings(self) -> TurnSettings:
        return self._hearing.activity.settings

    @property
    def _has_waited(self) -> bool:
        """For more words after the last."""
        return self._hearing.activity.silence_ms >= self._settings.likely_end_silence_ms

    def _judged(self, words: Words) -> None:
        activity = self._hearing.activity
        is_all = self._recognition.covers(activity.voiced_ms) and (activity.silence_ms > 0 or not activity.in_turn)
        wants_floor = interrupts(words, self._settings, is_all=is_all, reply_was_heard=self._replies.was_heard)
        details = {"failed": True} if words.error is not None else {}
        self._note("judged", wants_floor=wants_floor, voiced_ms=words.voiced_ms, **details)
        if wants_floor:
            self._apply(Input.YIELD)
        elif is_all and (
            self._has_waited or not activity.in_turn or not may_become_interruption(words, self._settings)
        ):
            self._apply(Input.KEEP)
