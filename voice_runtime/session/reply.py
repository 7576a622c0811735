"""One reply: made by the pipeline, turned into the client's rate, played, and timed."""

from dataclasses import dataclass, field

from voice_runtime.audio.pcm import to_pcm, to_samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.pipeline.runtime import Marks
from voice_runtime.session.events import Timing
from voice_runtime.session.playout import Playout
from voice_runtime.stages.payloads import SpokenClause


@dataclass(slots=True)
class Reply:
    """A reply that is being made or played. Sans-IO; the caller brings the time.

    request_id: of the pipeline's request that makes it. before_ms: where the turn's time went until `asked_s`, when the
    thinker was asked, by stage. marks: filled by the pipeline.
    """

    request_id: str
    playout: Playout
    before_ms: dict[str, float]
    asked_s: float
    marks: Marks = field(default_factory=Marks)
    _resampler: Resampler | None = None
    _spent_ms: dict[str, float] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.playout.reply

    def add(self, clause: SpokenClause) -> bool:
        """Append a clause; True when it has brought sound."""
        if self._resampler is None:
            self._resampler = Resampler(clause.rate_hz, self.playout.rate_hz)
        pcm = to_pcm(self._resampler.push(to_samples(clause.pcm)))
        self.playout.append(clause.text, pcm)
        return bool(pcm)

    def complete(self) -> None:
        """No more clauses will come."""
        if self._resampler is not None:
            self.playout.append_tail(to_pcm(self._resampler.flush()))
        self.playout.is_complete = True

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
        return Timing(self.id, self._spent_ms, dict(self.marks.metrics.get(thinker, {})), self.playout.underruns)

    def _measure(self, now_s: float) -> dict[str, float]:
        """Milliseconds from the end of the caller's speech to the first frame, by stage."""
        spent, since_s = dict(self.before_ms), self.asked_s
        for stage, first_s in self.marks.first_s.items():
            spent[stage] = (first_s - since_s) * 1000
            since_s = first_s
        spent["sending"] = (now_s - since_s) * 1000
        spent["total"] = sum(spent.values())
        return {name: round(ms, 1) for name, ms in spent.items()}
