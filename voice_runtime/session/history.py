"""The conversation as it was heard."""

from dataclasses import dataclass, field

from voice_runtime.stages.payloads import Message, Prompt

# Longer than a minute of speech. A caller whose answers fail again and again speaks one ever longer message.
LONGEST_MESSAGE_CHARACTERS = 2_000


@dataclass(slots=True)
class History:
    """What caller and agent have said, oldest first; of the agent only what was heard.

    turns: most pairs of messages that a prompt shows.
    """

    turns: int
    messages: list[Message] = field(default_factory=list)

    def add_caller(self, text: str) -> None:
        """The caller's words. Words after an answer of which nothing was heard continue the same message."""
        if self.messages and self.messages[-1].role == "user":
            text = f"{self.messages.pop().text} {text}"
        self.messages.append(Message("user", text[-LONGEST_MESSAGE_CHARACTERS:]))

    def add_agent(self, heard: str) -> None:
        if heard:
            self.messages.append(Message("assistant", heard))
            del self.messages[: max(0, len(self.messages) - 2 * self.turns)]

    def prompt(self) -> Prompt:
        return Prompt(list(self.messages))
