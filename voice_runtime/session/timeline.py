"""Every event of a turn with its time, for debugging. Holds no words and no sound."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from voice_runtime.session.events import ReplyText, SessionEvent, TranscriptReady, TurnTimeline

MOST_ENTRIES = 1_000  # a client that never lets a reply end; the oldest are dropped


@dataclass(slots=True)
class Timeline:
    """clock: seconds. on_note: gets each entry as it is noted. is_wanted: the client wants to be sent each turn's."""

    clock: Callable[[], float]
    on_note: Callable[..., None] | None = None
    is_wanted: bool = False
    _since_s: float = field(init=False)
    _entries: deque[tuple[float, str, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=MOST_ENTRIES))

    def __post_init__(self) -> None:
        self._since_s = self.clock()

    def note(self, what: str, at_s: float | None = None, **details: Any) -> None:
        """at_s: by `clock`; now when it is None."""
        at_s = self.clock() if at_s is None else at_s
        self._entries.append((round((at_s - self._since_s) * 1000, 1), what, details))
        if self.on_note is not None:
            self.on_note(at_s - self._since_s, what, **details)

    def note_event(self, event: SessionEvent) -> None:
        """What the client is told; of texts only the length."""
        details = {name: getattr(event, name) for name in ("reply", "status", "code") if hasattr(event, name)}
        if isinstance(event, TranscriptReady | ReplyText):
            details["characters"] = len(event.text)
        if not isinstance(event, TurnTimeline):
            self.note(type(event).__name__, **details)

    def take(self) -> TurnTimeline:
        """What was noted since the last call, in the order of time."""
        entries = sorted(self._entries, key=lambda entry: entry[0])
        self._entries.clear()
        return TurnTimeline(entries)
