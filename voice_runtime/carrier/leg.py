"""A call without its connection: the agent's messages in, answers out, and what the caller hears. Sans-IO."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voice_runtime.audio.pcm import Samples
from voice_runtime.carrier import base
from voice_runtime.carrier.earpiece import Earpiece


@dataclass(frozen=True, slots=True)
class Happened:
    """what: began, said, key and ended, of the call; speaks, mark, clear, pause, go on, hung up and fault, of the
    agent; played, dropped, full and room, of the queue. detail: of a mark its name.
    """

    at_s: float
    what: str
    detail: str = ""


@dataclass(slots=True)
class Leg:
    """One call. happened: in order of time. faults: what the agent did that the carrier forbids."""

    side: base.Side
    earpiece: Earpiece
    on_event: Callable[[Happened], None] = lambda happened: None
    happened: list[Happened] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    agent_hung_up: bool = False

    def take(self, message: base.Wire, now_s: float) -> list[base.Wire]:
        """A message of the agent; what it is answered."""
        answers = self.advance(now_s)
        try:
            asked: Sequence[base.Asked] = self.side.take(message)
        except base.Violation as error:
            asked = [base.Fault(str(error))]
        for one in asked:
            answers += self._answers(self._do(one, now_s), now_s)
        return answers

    def advance(self, now_s: float) -> list[base.Wire]:
        """What time alone brings."""
        return self._answers(self.earpiece.advance(now_s), now_s)

    def note(self, what: str, now_s: float, detail: str = "") -> None:
        happened = Happened(now_s, what, detail)
        self.happened.append(happened)
        self.on_event(happened)

    def at(self, what: str) -> list[float]:
        """When it happened, each time."""
        return [happened.at_s for happened in self.happened if happened.what == what]

    def _do(self, asked: base.Asked, now_s: float) -> list[base.Told]:
        match asked:
            case base.Sound(samples):
                return self._play(samples, now_s)
            case base.Place(name):
                self.note("mark", now_s, _shown(name))
                return self.earpiece.place(asked, now_s)
            case base.Drop():
                self.note("clear", now_s, f"{self.earpiece.queued_s * 1_000:.0f} ms")
                return self.earpiece.drop(now_s)
            case base.Halt():
                self.note("pause", now_s)
                return self.earpiece.pause(now_s)
            case base.GoOn():
                self.note("go on", now_s)
                return self.earpiece.go_on(now_s)
            case base.HangUp():
                self.agent_hung_up = True
                self.note("hung up", now_s)
            case base.Fault(text):
                self.faults.append(text)
                self.note("fault", now_s, text)
        return []

    def _play(self, samples: Samples, now_s: float) -> list[base.Told]:
        if not self.earpiece.queued_s:
            self.note("speaks", now_s)
        lost = self.earpiece.lost_samples
        told = self.earpiece.play(samples, now_s)
        if self.earpiece.lost_samples > lost:
            self._do(base.Fault(f"{samples.size} samples came to a full queue and are lost"), now_s)
        return told

    def _answers(self, told: list[base.Told], now_s: float) -> list[base.Wire]:
        answers: list[base.Wire] = []
        for one in told:
            match one:
                case base.Reached(name, was_dropped):
                    self.note("dropped" if was_dropped else "played", now_s, _shown(name))
                case base.Room(may_send):
                    self.note("room" if may_send else "full", now_s)
            answers += self.side.tell(one)
        return answers


def _shown(name: object) -> str:
    """Of what a mark was asked with, its name."""
    if isinstance(name, dict) and len(name) == 1:
        (name,) = name.values()
    return str(name[-1] if isinstance(name, tuple) else name)
