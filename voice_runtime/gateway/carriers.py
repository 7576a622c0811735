"""Which carriers may call, and how each proves that it is it: a signature, a token, or both.

No browser comes to these doors. Knows the schemes of `signatures` and the settings; opens nothing.
"""

import base64
import binascii
import hmac
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from voice_runtime.errors import ConfigError, PeerError
from voice_runtime.gateway.auth import TELEPHONY, is_loopback
from voice_runtime.gateway.clients import Attempts
from voice_runtime.gateway.signatures import (
    PlivoSignature,
    Scheme,
    Seen,
    Signed,
    TelnyxSignature,
    TwilioSignature,
    VonageSignature,
)
from voice_runtime.gateway.tokens import encoded
from voice_runtime.pipeline.config import (
    CarrierSettings,
    PlivoSettings,
    TelephonySettings,
    TelnyxSettings,
    TwilioSettings,
    VonageSettings,
)

# A token stands in a path: letters that need no escape (RFC 3986, unreserved), and too many to be guessed.
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Proofs:
    """What is asked of a carrier. handshake, webhook: how it signs these, where it does."""

    handshake: Scheme | None = None
    webhook: Scheme | None = None
    token: str | None = field(default=None, repr=False)


class CarrierAccess:
    """Decides over each request of a carrier, before anything else does work.

    host: the address we listen on. environ: where the secrets are. most_wrong: wrong proofs of one client in a minute;
    then its tokens are not looked at any more. A right signature always is: a carrier has few addresses, and who else
    is its customer must not be able to shut us out. clock: Unix time in seconds.

    Raises:
        ConfigError: a variable is missing or holds no such secret, or everybody could call.
    """

    def __init__(
        self,
        settings: TelephonySettings,
        host: str,
        environ: Mapping[str, str] = os.environ,
        most_wrong: int = 30,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._public_url = settings.public_url or ""
        self._proofs = {name: _proofs(carrier, environ) for name, carrier in settings.carriers().items()}
        socket = settings.audiosocket
        self._uuid = None if socket is None else _secret(environ, socket.uuid_env)
        self._wrong = Attempts(most_wrong, clock)
        self._seen = Seen()
        self._clock = clock
        is_private = is_loopback(host) and is_loopback(urlsplit(self._public_url).hostname or host)
        for name, proofs in self._proofs.items():
            if not is_private and proofs.handshake is None and proofs.token is None:
                at = settings.public_url or f"host {host}"
                raise ConfigError(f"telephony.{name} lets everybody call at {at}, expected {_wanted(name)}")

        if socket is not None and self._uuid is None and not is_private:
            raise ConfigError(f"telephony.audiosocket lets everybody call at host {host}, expected uuid_env")

    def check_uuid(self, call_id: str, client: str) -> None:
        """Whether a call of AudioSocket may begin. Raises PeerError: bad_token, too_many_attempts."""
        self._wrong.check(client)
        if self._uuid is not None and not hmac.compare_digest(encoded(call_id.lower()), encoded(self._uuid.lower())):
            self._wrong.add(client)
            raise PeerError("bad_token", "the call's UUID is wrong, expected the one that the server was set up with")

    def check_handshake(
        self, carrier: str, target: str, headers: Mapping[str, str], path_token: str = "", client: str = ""
    ) -> None:
        """Whether the carrier may open a WebSocket.

        target: path and query as they came, see `target_of`. client: see `client_name`.

        Raises:
            PeerError: no_such_carrier, bad_origin, bad_signature, bad_token, replayed or too_many_attempts.
        """
        proofs = self._of(carrier)
        url = self._public_url.replace("http", "ws", 1) + target
        self._check(carrier, proofs.handshake, Signed(url, headers), path_token, client)

    def check_webhook(
        self, carrier: str, target: str, headers: Mapping[str, str], body: bytes, client: str = ""
    ) -> None:
        """Whether a POST comes from the carrier.

        Raises:
            PeerError: as above, and bad_form.
        """
        proofs = self._of(carrier)
        self._check(carrier, proofs.webhook, Signed(self._public_url + target, headers, body), "", client)

    def url(self, path: str) -> str:
        """What carriers call a path of ours by."""
        return self._public_url + path

    def stream_url(self, carrier: str) -> str:
        """Where the carrier is to open its WebSocket."""
        token = self._of(carrier).token
        path = f"{TELEPHONY}{carrier}" + (f"/{token}" if token else "")
        return self._public_url.replace("http", "ws", 1) + path

    def _of(self, carrier: str) -> _Proofs:
        proofs = self._proofs.get(carrier)
        if proofs is None:
            raise PeerError(
                "no_such_carrier", f"carrier is {carrier[:40]!r}, expected one that the server is set up for"
            )
        return proofs

    def _check(self, carrier: str, scheme: Scheme | None, request: Signed, path_token: str, client: str) -> None:
        # A webhook that is signed needs no token: it comes to a path that has none.
        token = None if scheme is not None and request.body is not None else self._proofs[carrier].token
        if scheme is None and token is None and "origin" in request.headers:
            raise PeerError("bad_origin", "a browser has sent Origin, expected a carrier")
        if scheme is None:
            self._wrong.check(client)
        try:
            mark = scheme.check(request, self._clock()) if scheme is not None else None
            if token is not None and not _has_token(request.headers, path_token, token):
                raise PeerError(
                    "bad_token", "token is missing or wrong, expected the carrier's, in the path or as Bearer"
                )
            if mark is not None:
                self._seen.add(f"{carrier} ".encode() + mark)
        except PeerError:
            self._wrong.check(client)
            self._wrong.add(client)
            raise


def target_of(scope: Mapping[str, Any]) -> str:
    """Path and query of an ASGI scope, not decoded: signatures are over what the carrier wrote."""
    path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def carrier_and_token(path: str) -> tuple[str, str]:
    """Of /telephony/CARRIER[/TOKEN]; of any other path one that names no carrier."""
    carrier, _, token = path.removeprefix(TELEPHONY).partition("/")
    return ("", "") if "/" in token else (carrier, token)


def _proofs(settings: CarrierSettings, environ: Mapping[str, str]) -> _Proofs:
    token = _secret(environ, settings.token_env)
    if token is not None and not _TOKEN.fullmatch(token):
        expected = "16 to 200 letters, digits, '-', '.', '_' or '~'"
        raise ConfigError(f"{settings.token_env} holds {len(token)} characters, expected {expected}")
    scheme: Scheme | None = None
    match settings:
        case TwilioSettings() if secret := _secret(environ, settings.auth_token_env):
            scheme = TwilioSignature(secret)
        case PlivoSettings() if secret := _secret(environ, settings.auth_token_env):
            scheme = PlivoSignature(secret)
        case VonageSettings() if secret := _secret(environ, settings.signature_secret_env):
            scheme = VonageSignature(secret)
        case TelnyxSettings() if secret := _secret(environ, settings.public_key_env):
            return _Proofs(None, TelnyxSignature(secret), token)  # it documents no signature of handshakes
    return _Proofs(scheme, scheme, token)


def _secret(environ: Mapping[str, str], name: str | None) -> str | None:
    if name is None:
        return None
    if not environ.get(name):
        raise ConfigError(f"{name} is not set, expected the secret that the pipeline file names by it")
    return environ[name]


def _wanted(carrier: str) -> str:
    kinds = {"twilio": "auth_token_env", "plivo": "auth_token_env", "vonage": "signature_secret_env or token_env"}
    return kinds.get(carrier, "token_env")


def _has_token(headers: Mapping[str, str], path_token: str, token: str) -> bool:
    given = (path_token, *_credentials(headers.get("authorization", "")))
    return sum(hmac.compare_digest(encoded(one), encoded(token)) for one in given) > 0


def _credentials(authorization: str) -> Iterator[str]:
    """What Authorization brings: a Bearer token, or the password of Basic, which Exotel and jambonz send."""
    kind, _, text = authorization.partition(" ")
    if kind.lower() == "bearer":
        yield text
    elif kind.lower() == "basic":
        try:
            yield base64.b64decode(text, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return
