"""What the agent says without being asked: a greeting, whether anybody is there, goodbye. Sans-IO."""

from dataclasses import dataclass

from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.session.turn import Input

GREET_AFTER_S = 0.3  # a client's own greeting, if it has one, has come by then


@dataclass(slots=True)
class Unasked:
    """When to say what.

    greet_s: when to greet, if there is a greeting by then; None when something was said already.
    quiet_since_s: None while somebody has the floor.
    """

    greet_s: float | None
    quiet_since_s: float | None
    prompts: int = 0  # said since the caller was heard of

    def due_s(self, settings: SessionSettings) -> float:
        """When `take` will have something; inf when nothing is waited for."""
        if self.quiet_since_s is None:
            return float("inf")
        idle_s = self.quiet_since_s + settings.idle_s if settings.idle_s else float("inf")
        return idle_s if self.greet_s is None or not settings.greeting else min(self.greet_s, idle_s)

    def take(self, settings: SessionSettings, now_s: float) -> tuple[str, Input] | None:
        """What is to be said now, while nobody has the floor."""
        if now_s < self.due_s(settings):
            return None
        greets, self.greet_s = self.greet_s is not None and settings.greeting, None
        if greets:
            return settings.greeting, Input.SAY
        self.prompts += 1
        if self.prompts > len(settings.idle_prompts):
            return settings.goodbye, Input.GOODBYE
        return settings.idle_prompts[self.prompts - 1], Input.SAY
