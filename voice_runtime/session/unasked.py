"""What the agent says without being asked: a greeting, whether anybody is there, goodbye. Sans-IO."""

from dataclasses import dataclass

from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.session.turn import Input

GREET_AFTER_S = 0.3  # a client's own greeting, if it has one, has come by then


@dataclass(slots=True)
class Unasked:
    """When to say what.

    greet_s: when to greet; None when that is done or not wanted. quiet_since_s: when the agent's last reply was over or
    the caller's last words came; noise is none. prompts: said since then.
    """

    greet_s: float | None
    quiet_since_s: float
    prompts: int = 0

    def heard(self, now_s: float) -> None:
        """The caller is there."""
        self.prompts, self.greet_s, self.quiet_since_s = 0, None, now_s

    def due_s(self, settings: SessionSettings) -> float:
        """When `take` will have something; inf when nothing is waited for."""
        greet_s = self.greet_s if self.greet_s is not None and settings.greeting else float("inf")
        idle_s = self.quiet_since_s + settings.idle_s if settings.idle_s else float("inf")
        return min(greet_s, idle_s)

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
