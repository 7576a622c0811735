"""What travels between the session and the stages. Audio is raw PCM bytes, never pickled objects."""

import msgspec


class Utterance(msgspec.Struct, frozen=True, tag=True):
    """What the caller said. pcm: 16-bit little-endian mono at 16 kHz."""

    pcm: bytes


class Transcript(msgspec.Struct, frozen=True, tag=True):
    """What was recognised; empty when there were no words."""

    text: str


class Heard(msgspec.Struct, frozen=True, tag=True):
    """The last seconds of the caller, to judge whether the turn is over. pcm: as in `Utterance`."""

    pcm: bytes


class TurnEnd(msgspec.Struct, frozen=True, tag=True):
    """probability: that the caller has finished, 0 to 1."""

    probability: float


class Message(msgspec.Struct, frozen=True):
    """One turn of the conversation. role: "system", "user" or "assistant"."""

    role: str
    text: str


class Prompt(msgspec.Struct, frozen=True, tag=True):
    """The conversation so far; the last message is the caller's. seed: of the drawing, when the thinker draws."""

    messages: list[Message]
    seed: int | None = None


class Opening(msgspec.Struct, frozen=True, tag=True):
    """Opens a streamed request whose items come from the stage before."""


class TokenIds(msgspec.Struct, frozen=True, tag=True):
    """Some of the thinker's tokens, in order."""

    ids: list[int]


class Clause(msgspec.Struct, frozen=True, tag=True):
    """A piece of the reply that can be spoken by itself. The clauses of a reply add up to its text."""

    text: str


class SpokenClause(msgspec.Struct, frozen=True, tag=True):
    """A piece of the reply as sound. text: the words that begin in it. pcm: 16-bit little-endian mono at `rate_hz`."""

    text: str
    pcm: bytes
    rate_hz: int


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
