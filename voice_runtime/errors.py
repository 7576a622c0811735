"""The named errors. Every message says what was found and what was expected.

Ours and the peer's faults are different classes: `PeerError` is the caller's mistake, is told to the caller by its
`code` and costs only the caller's session; everything else is ours.
"""


class VoiceRuntimeError(Exception):
    """Base of every error that this package raises on purpose."""


class AssetError(VoiceRuntimeError):
    """A model file is missing, corrupt or half converted. The message names the command that repairs it."""


class ConfigError(VoiceRuntimeError):
    """A pipeline file or a command-line option says something that cannot be served."""


class UnsupportedError(VoiceRuntimeError):
    """A feature that is refused on purpose. The message gives the reason."""


class QueueFullError(VoiceRuntimeError):
    """A bounded queue is at its limit. The message has the count and the limit."""


class RequestError(VoiceRuntimeError):
    """One request cannot be served; the other requests of its batch are not touched."""


class MediaError(VoiceRuntimeError):
    """A packet or a sound is not what it should be; what comes after it is not touched."""


class StageDiedError(VoiceRuntimeError):
    """The worker process that held a request ended before the request did."""


class PeerError(VoiceRuntimeError):
    """The client's fault. `code` is what the client is told.

    code: one of the codes listed in README, section "Errors".
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
