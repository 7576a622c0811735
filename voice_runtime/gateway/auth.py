"""Who may connect: the Host and Origin of every request, and a token off loopback. Sans-IO.

Source: RFC 6455 section 10.2 (Origin), RFC 6454; any web page may open a socket to 127.0.0.1, and any name may be made
to resolve to it, so both headers are checked on loopback too.
"""

import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from voice_runtime.errors import ConfigError, PeerError

# The page itself holds nothing of anybody's, and a load balancer asks for /health.
PROTECTED = ("/v1/", "/debug/", "/metrics")
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


@dataclass(frozen=True, slots=True)
class Access:
    """Decides over each request.

    host: the address we listen on; off loopback we may be called by any name, since the token protects.
    token: asked of everybody when set.

    Raises:
        ConfigError: we would listen off loopback without a token.
    """

    host: str
    token: str | None = None

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ConfigError(f"host {self.host} is not loopback and no token is set, expected VOICE_RUNTIME_TOKEN")

    def check(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Raises PeerError: bad_host, bad_origin or bad_token."""
        host = headers.get("host", "")
        if is_loopback(self.host) and _name(host) not in LOOPBACK_NAMES | {self.host}:
            raise PeerError("bad_host", f"Host is {host[:100]!r}, expected localhost, 127.0.0.1 or [::1]")
        origin = headers.get("origin")
        if origin is not None and not _is_page_of(origin, host):
            raise PeerError("bad_origin", f"Origin is {origin[:100]!r}, expected the page of {host[:100]!r}")
        if self.token is not None and path.startswith(PROTECTED):
            self._check_token(headers.get("authorization", ""), query.get("token", ""))

    def _check_token(self, authorization: str, in_query: str) -> None:
        assert self.token is not None
        scheme, _, credentials = authorization.partition(" ")
        given = credentials if scheme.lower() == "bearer" else in_query
        if not hmac.compare_digest(_bytes(given), _bytes(self.token)):
            raise PeerError("bad_token", "token is missing or wrong, expected the one that the server was started with")


def _name(host: str) -> str:
    """The name or address in a Host header, in lower case; empty when it is malformed."""
    match = _HOST.fullmatch(host)
    return (match["v6"] or match["name"]).lower() if match else ""


def _is_page_of(origin: str, host: str) -> bool:
    match = _ORIGIN.fullmatch(origin)
    return match is not None and match["host"].lower() == host.lower()


def _bytes(token: str) -> bytes:
    """Of any string: the environment and a client may bring lone surrogates."""
    return token.encode("utf-8", "surrogatepass")
