"""The stages behind a session, played by the test."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from voice_runtime.pipeline.runtime import Listener, Marks
from voice_runtime.schedulers.messages import Chunk, Failed, Finished
from voice_runtime.stages.payloads import Opening, Payload


@dataclass(slots=True, eq=False)
class Asked:
    """A request as it was submitted, to be answered by the test.

    After an abort the session is told nothing of it, as `Pipeline` promises.
    text: what is to be said, when it is a text of the agent's own.
    """

    stage: str
    request_id: str
    payload: Payload
    clock: Callable[[], float]
    _listener: Listener
    text: str = ""
    marks: Marks = field(default_factory=Marks)
    is_aborted: bool = False
    is_over: bool = False  # it was answered to its end

    def bring(self, item: Payload) -> None:
        """A result, and more to come."""
        if not self.is_aborted:
            self._listener(Chunk(self.request_id, item))

    def finish(self, result: Payload | None = None) -> None:
        self.is_over = True
        if not self.is_aborted:
            self._listener(Finished(self.request_id, result))

    def fail(self, error: str) -> None:
        self.is_over = True
        if not self.is_aborted:
            self._listener(Failed(self.request_id, error))

    def mark(self, stage: str) -> None:
        """A stage of its chain has brought its first result now."""
        self.marks.first_s.setdefault(stage, self.clock())


class PlayedStages:
    """Keeps what a session asks. clock: of the marks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.asked: list[Asked] = []
        self._clock = clock
        self._numbers = itertools.count()

    def new_id(self) -> str:
        return f"{next(self._numbers):016x}"

    def submit(self, entry: str, request_id: str, payload: Payload, listener: Listener) -> Marks:
        return self._ask(Asked(entry, request_id, payload, self._clock, listener))

    def say(self, entry: str, request_id: str, text: str, listener: Listener) -> Marks:
        return self._ask(Asked(entry, request_id, Opening(), self._clock, listener, text))

    def _ask(self, asked: Asked) -> Marks:
        assert asked.request_id not in {other.request_id for other in self.asked}
        self.asked.append(asked)
        return asked.marks

    def abort(self, request_id: str) -> None:
        for asked in self.asked:
            if asked.request_id == request_id:
                asked.is_aborted = True

    def last(self, stage: str) -> Asked:
        """The last request to a stage."""
        return self.of(stage)[-1]

    def of(self, stage: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.stage == stage]

    def live(self) -> list[Asked]:
        """What stages still work at."""
        return [asked for asked in self.asked if not (asked.is_over or asked.is_aborted)]
