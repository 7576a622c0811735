"""One reply: made by the pipeline, turned into the client's rate, played, and timed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from voice_runtime.audio.pcm import to_pcm, to_samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.pipeline.runtime import Marks
from voice_runtime.session.events import Timing
from voice_runtime.session.playout import Playout
from voice_runtime.stages.payloads import SpokenClause


@dataclass(frozen=True, slots=True)
class Spent:
    """Where a turn's time went, by stage in milliseconds, from `since_s` on: the end of the caller's voice.

    marks: of the request that recognised it.
    """

    since_s: float
    ms: dict[str, float] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)


@dataclass(slots=True)
class Reply:
    """A reply that is being made or played; a draft, which the client knows nothing of, until it has an id.

    Sans-IO; the caller brings the time.
    request_id: of the pipeline's request that makes it. answers: the caller's words, "" when the agent speaks unasked.
    asked_s: when the pipeline was asked. before: where the turn's time went until then.
    id, epoch: for the client; of the session when the reply began: a frame of an older epoch is never sent.
    error: why it failed while it was a draft.
    """

    request_id: str
    playout: Playout
    answers: str
    asked_s: float
    before: Spent
    marks: Marks = field(default_factory=Marks)
    id: str = ""
    epoch: int = 0
    confirmed_s: float = 0.0
    error: str | None = None
    is_own: bool = False  # the agent's own words, or a repetition: none of the thinker's
    was_told_to_pause: bool = False
    _resampler: Resampler | None = None
    _spent_ms: dict[str, float] = field(default_factory=dict)

    def add(self, clause: SpokenClause) -> None:
        if self._resampler is None:
            self._resampler = Resampler(clause.rate_hz, self.playout.rate_hz)
        pcm = to_pcm(self._resampler.push(to_samples(clause.pcm)))
        ratio = self.playout.rate_hz / clause.rate_hz
        self.playout.append([(word.text, int(word.sample * ratio)) for word in clause.words], pcm)

    def complete(self) -> None:
        """No more clauses will come."""
        if self._resampler is not None:
            self.playout.append([], to_pcm(self._resampler.flush()))
            self._resampler = None
        self.playout.is_complete = True

    @property
    def has_sound(self) -> bool:
        return self.playout.appended_s > 0

    def next_frame(self, now_s: float) -> bytes | None:
        """See `Playout.next_frame`."""
        frame = self.playout.next_frame(now_s)
        if frame is not None and not self._spent_ms:
            self._spent_ms = self._measure(now_s)
        return frame

    def timing(self, thinker: str) -> Timing | None:
        """Where its time went; None when none of its sound was sent. thinker: whose token counts are told."""
        if not self._spent_ms:
            return None
        counted = self.marks.metrics.get(thinker, {})
        tokens = {name: count for name, count in counted.items() if not name.endswith("_ms")}
        models_ms = computed_ms((self.before.marks, self.marks))
        return Timing(self.id, self._spent_ms, tokens, self.playout.underruns, models_ms)

    def _measure(self, now_s: float) -> dict[str, float]:
        """Milliseconds from the end of the caller's speech to the first frame, by stage.

        What no stage took was spent on being sure that the turn is over.
        """
        spent, since_s = dict(self.before.ms), self.asked_s
        for stage, first_s in self.marks.first_s.items():
            spent[stage] = (first_s - since_s) * 1000
            since_s = first_s
        sending_ms = (now_s - max(since_s, self.confirmed_s)) * 1000
        total_ms = (now_s - self.before.since_s) * 1000
        spent["confirming"] = total_ms - sending_ms - sum(spent.values())
        spent |= {"sending": sending_ms, "total": total_ms}
        return {name: round(ms, 1) for name, ms in spent.items()}


def computed_ms(requests: Iterable[Marks]) -> float | None:
    """Milliseconds that the models of these requests, one after another, computed until the last one's first result.

    A stage waits for as many results of the one before as its own first result takes. None: a stage has not told what
    it computed for so many.
    """
    chain = [marks.metrics.get(stage, {}) for marks in requests for stage in marks.first_s]
    total_ms = 0.0
    for stage, following in pairwise([*chain, {}]):
        items = int(following.get("first_items", 1))
        ms = stage.get("first_compute_ms" if items == 1 else f"compute_{items}_ms")
        if ms is None:
            return None
        total_ms += ms
    return round(total_ms, 1) if chain else None
