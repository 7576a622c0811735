"""Conversations whose connection was lost, for a while. Only what was said is kept, in memory."""

import secrets
from collections import OrderedDict
from collections.abc import Callable

from voice_runtime.errors import PeerError
from voice_runtime.session.history import Memory

MOST_PARKED = 256  # of a few kilobytes each; the oldest make room


class ParkedConversations:
    """keep_s: so long a conversation can be gone on with. clock: seconds."""

    def __init__(self, keep_s: float, clock: Callable[[], float]) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._parked: OrderedDict[str, tuple[float, Memory]] = OrderedDict()  # token -> when it expires, what is kept

    def new_token(self) -> str:
        """For one session; it opens nothing until that session has been put here."""
        return secrets.token_urlsafe(16)

    def put(self, token: str, memory: Memory) -> None:
        self.drop_expired()
        if self._keep_s > 0:
            self._parked[token] = self._clock() + self._keep_s, memory
        while len(self._parked) > MOST_PARKED:
            self._parked.popitem(last=False)

    def take(self, token: str) -> Memory:
        """The conversation, once: its new session has a token of its own.

        Raises:
            PeerError: bad_resume, it was never there, has expired or was taken.
        """
        self.drop_expired()
        if (parked := self._parked.pop(token, None)) is None:
            raise PeerError("bad_resume", "resume names no conversation that can be gone on with")
        return parked[1]

    def drop_expired(self) -> None:
        """Forget what nobody can go on with any more."""
        while self._parked and next(iter(self._parked.values()))[0] <= self._clock():
            self._parked.popitem(last=False)
