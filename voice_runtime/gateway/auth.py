"""Who may connect: the Host and Origin of every request, and a token off loopback. Sans-IO but for the clock.

Source: RFC 6455 section 10.2 (Origin), RFC 6454; any web page may open a socket to 127.0.0.1, and any name may be made
to resolve to it, so both headers are checked on loopback too.
"""

import hmac
import ipaddress
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from voice_runtime.errors import ConfigError, PeerError
from voice_runtime.gateway import tokens

# The page itself holds nothing of anybody's, and a load balancer asks for /health.
API = "/v1/"
PROTECTED = (API, "/debug/", "/metrics")
TOKENS = "/v1/tokens"
TELEPHONY = "/telephony/"  # the doors of carriers, see `CarrierAccess`
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# A name or an address and perhaps a port: no user, path or query, of which a browser puts none into these headers.
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_ORIGIN = re.compile(r"https?://(?P<host>.+)", re.IGNORECASE)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_session_door(path: str) -> bool:
    """Whether sessions are opened or kept there: what a minted token is for. All else wants the API key."""
    return path in ("/v1/pcm", "/v1/webrtc") or path.startswith("/v1/webrtc/")


@dataclass(frozen=True, slots=True)
class Access:
    """Decides over each request.

    host: the address we listen on; off loopback we may be called by any name, since the token protects.
    token: the API key, asked of everybody when set; at session doors one that was minted from it does as well.
    origins: pages of other hosts that may use what is under /v1/, as their browsers write it: scheme://host[:port].
    behind_proxy: clients' addresses come from a proxy that is trusted, see `client_name`.
    clock: Unix time in seconds.

    Raises:
        ConfigError: we would listen off loopback without a token.
    """

    host: str
    token: str | None = field(default=None, repr=False)
    origins: frozenset[str] = frozenset()
    behind_proxy: bool = False
    clock: Callable[[], float] = time.time
    _key: bytes = field(init=False, repr=False, default=b"")

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ConfigError(f"host {self.host} is not loopback and no token is set, expected VOICE_RUNTIME_TOKEN")
        if self.token:
            object.__setattr__(self, "_key", tokens.key_of(self.token))

    def check(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Raises PeerError: bad_host, bad_origin or bad_token."""
        self.check_page(path, headers)
        self.check_token(path, headers, query)

    def check_page(self, path: str, headers: Mapping[str, str]) -> None:
        """Raises PeerError: bad_host or bad_origin. A carrier's Origin is nothing that we could know."""
        host = headers.get("host", "")
        if is_loopback(self.host) and _name(host) not in LOOPBACK_NAMES | {self.host}:
            raise PeerError("bad_host", f"Host is {host[:100]!r}, expected localhost, 127.0.0.1 or [::1]")
        origin = None if path.startswith(TELEPHONY) else headers.get("origin")
        if origin is not None and not _is_page_of(origin, host) and not self.shares(path, origin):
            raise PeerError("bad_origin", f"Origin is {origin[:100]!r}, expected the page of {host[:100]!r}")

    def check_token(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Raises PeerError: bad_token."""
        if not self.asks_token(path):
            return
        given = _given(path, headers.get("authorization", ""), query.get("token", ""))
        if hmac.compare_digest(tokens.encoded(given), tokens.encoded(self.token or "")):
            return
        expires_s = tokens.expiry_s(self._key, given) if is_session_door(path) else None
        if expires_s is None:
            raise PeerError("bad_token", "token is missing or wrong, expected the one that the server was started with")
        if (over_s := self.clock() - expires_s) >= 0:
            raise PeerError("bad_token", f"token has expired {over_s:.0f} s ago, expected a newer one")

    def asks_token(self, path: str) -> bool:
        return self.token is not None and path.startswith(PROTECTED)

    def shares(self, path: str, origin: str) -> bool:
        """Whether a page of another host may use this path."""
        return origin in self.origins and path.startswith(API)

    def mint(self, ttl_s: int) -> str:
        """A token that opens session doors for so many seconds.

        Raises:
            PeerError: no_api_key, there is nothing to mint it from, and nobody is asked for one.
        """
        if not self.token:
            raise PeerError("no_api_key", "the server has no token of its own, expected VOICE_RUNTIME_TOKEN to be set")
        return tokens.mint(self._key, ttl_s, self.clock())


def _given(path: str, authorization: str, in_query: str) -> str:
    """The token of a request. The API key is minted from only out of a header: addresses end in logs and histories."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return credentials
    return "" if path == TOKENS else in_query


def _name(host: str) -> str:
    """The name or address in a Host header, in lower case; empty when it is malformed."""
    match = _HOST.fullmatch(host)
    return (match["v6"] or match["name"]).lower() if match else ""


def _is_page_of(origin: str, host: str) -> bool:
    match = _ORIGIN.fullmatch(origin)
    return match is not None and match["host"].lower() == host.lower()
