"""The conversation as it was heard."""

from dataclasses import dataclass, field

from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.stages.payloads import CUT, Message

# Longer than a minute of speech. A caller whose answers fail again and again speaks one ever longer message.
LONGEST_MESSAGE_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Memory:
    """What a session that goes on with another's conversation begins with."""

    messages: list[Message]
    settings: SessionSettings
    last_answer: str = ""


@dataclass(slots=True)
class History:
    """What caller and agent have said, oldest first; of the agent only what was heard.

    turns: most pairs of messages that a prompt shows.
    """

    turns: int
    messages: list[Message] = field(default_factory=list)

    def add_caller(self, text: str) -> None:
        """The caller's words. Words after an answer of which nothing was heard continue the same message."""
        self.messages = self.with_caller(text)

    def with_caller(self, text: str) -> list[Message]:
        """The conversation as it is once the caller has said `text`."""
        before = self.messages
        if before and before[-1].role == "user":
            text, before = f"{before[-1].text} {text}", before[:-1]
        return [*before, Message("user", text[-LONGEST_MESSAGE_CHARACTERS:])]

    def add_agent(self, heard: str, *, was_cut: bool = False) -> None:
        """What was heard of the agent. What it says unasked after an answer continues the same message."""
        if heard:
            if self.messages and self.messages[-1].role == "assistant":
                before = self.messages.pop()
                heard = f"{before.text}{CUT if before.was_cut else ''} {heard}"[-LONGEST_MESSAGE_CHARACTERS:]
            self.messages.append(Message("assistant", heard, was_cut))
            del self.messages[: max(0, len(self.messages) - 2 * self.turns)]
