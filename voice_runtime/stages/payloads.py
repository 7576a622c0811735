"""What travels between the session and the stages. Audio is raw PCM bytes, never pickled objects."""

import re

import msgspec


class Utterance(msgspec.Struct, frozen=True, tag=True):
    """What the caller said. pcm: 16-bit little-endian mono at 16 kHz."""

    pcm: bytes


class Transcript(msgspec.Struct, frozen=True, tag=True):
    """What was recognised; empty when there were no words.

    confidence, weakest: geometric mean and lowest of the tokens' probabilities, 1.0 from a recogniser that tells none.
    """

    text: str
    confidence: float = 1.0
    weakest: float = 1.0


class Heard(msgspec.Struct, frozen=True, tag=True):
    """The last seconds of the caller, to judge whether the turn is over. pcm: as in `Utterance`."""

    pcm: bytes


class TurnEnd(msgspec.Struct, frozen=True, tag=True):
    """probability: that the caller has finished, 0 to 1."""

    probability: float


CUT = " —"  # how a reader sees that an answer was heard only so far


class Message(msgspec.Struct, frozen=True):
    """One turn of the conversation. role: "user" or "assistant". was_cut: an answer that was heard only so far."""

    role: str
    text: str
    was_cut: bool = False


class Prompt(msgspec.Struct, frozen=True, tag=True):
    """The conversation so far; the last message is the caller's.

    instructions: of this session, in place of the stage's own. seed: of the drawing, when the thinker draws.
    """

    messages: list[Message]
    instructions: str | None = None
    seed: int | None = None


class Opening(msgspec.Struct, frozen=True, tag=True):
    """Opens a streamed request whose items come from the stage before."""


class TokenIds(msgspec.Struct, frozen=True, tag=True):
    """Some of the thinker's tokens, in order."""

    ids: list[int]


class Clause(msgspec.Struct, frozen=True, tag=True):
    """A piece of the reply that can be spoken by itself. The clauses of a reply add up to its text."""

    text: str


class SpokenWord(msgspec.Struct, frozen=True):
    """Words of the reply, with the spaces around them, and the sample of their clause at which they begin."""

    text: str
    sample: int


class SpokenClause(msgspec.Struct, frozen=True, tag=True):
    """A piece of the reply as sound. words: those that begin in it. pcm: 16-bit little-endian mono at `rate_hz`."""

    words: list[SpokenWord]
    pcm: bytes
    rate_hz: int

    @classmethod
    def spread(cls, text: str, pcm: bytes, rate_hz: int) -> "SpokenClause":
        """A clause of a voice that does not tell when it says what: a word takes as long as it has letters."""
        samples_per_letter = len(pcm) / 2 / max(1, len(text))
        words = re.finditer(r"\s*\S+\s*", text)
        return cls([SpokenWord(word[0], int(word.start() * samples_per_letter)) for word in words], pcm, rate_hz)

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.words)


class Word(msgspec.Struct, frozen=True):
    """Words of the reply, with the spaces around them, and the codec frame of the reply at which they begin."""

    text: str
    frame: int


class Codes(msgspec.Struct, frozen=True, tag=True):
    """Some frames of the reply as codec codes, in order.

    codes: uint16, little-endian, shape (frames, books). words: those that these frames and the next ones speak.
    """

    codes: bytes
    words: list[Word]


Payload = Utterance | Transcript | Heard | TurnEnd | Prompt | Opening | TokenIds | Clause | Codes | SpokenClause
