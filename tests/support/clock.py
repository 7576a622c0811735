"""Time that only the test moves."""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """Stands in for `time.monotonic`."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s
