"""Short-lived tokens for browsers, minted by whoever holds the API key. Sans-IO: keeps nothing, reads no clock.

A token is `EXPIRY_MS.ID.MAC`: when it expires in milliseconds of Unix time, a random id, and an HMAC-SHA256 over both.
Nothing is stored, so a token outlives a restart and is good at every gateway that has the same API key.

Source: RFC 2104 (HMAC), RFC 7914 (scrypt).
"""

import hashlib
import hmac
import secrets
from typing import Annotated

import msgspec
from msgspec import Meta

from voice_runtime.errors import PeerError

DEFAULT_TTL_S = 60
MOST_TTL_S = 3_600
MOST_REQUEST_BYTES = 1_024


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    ttl_s: Annotated[int, Meta(ge=1, le=MOST_TTL_S)] = DEFAULT_TTL_S


_decoder = msgspec.json.Decoder(_Request)


def key_of(api_key: str) -> bytes:
    """What tokens are signed with; takes about 50 ms.

    Slow on purpose: a token goes to strangers, who could try API keys against it as fast as this is, unseen by us.
    """
    return hashlib.scrypt(encoded(api_key), salt=b"voice_runtime session tokens", n=2**14, r=8, p=1, dklen=32)


def mint(key: bytes, ttl_s: float, now_s: float) -> str:
    """A token that is good for `ttl_s` seconds. now_s: Unix time."""
    signed = f"{round((now_s + ttl_s) * 1000)}.{secrets.token_urlsafe(16)}"
    return f"{signed}.{_mac(key, signed)}"


def expiry_s(key: bytes, token: str) -> float | None:
    """Unix time from which a token of ours is not good any more; None when it was not minted with this key."""
    signed, _, mac = token.rpartition(".")
    if not hmac.compare_digest(encoded(mac), encoded(_mac(key, signed))):
        return None
    return int(signed.partition(".")[0]) / 1000  # we wrote it: the signature is right


def requested_ttl_s(body: bytes) -> int:
    """How long a token shall be good, from the body of a request; an empty one leaves it to us.

    Raises:
        PeerError: bad_ttl.
    """
    if not body:
        return DEFAULT_TTL_S
    expected = f'{{"ttl_s": N}} with a whole number of seconds from 1 to {MOST_TTL_S}'
    if len(body) > MOST_REQUEST_BYTES:
        raise PeerError("bad_ttl", f"the request has more than {MOST_REQUEST_BYTES} bytes, expected {expected}")
    try:
        return _decoder.decode(body).ttl_s
    except (msgspec.DecodeError, RecursionError) as error:
        raise PeerError("bad_ttl", f"the request is {body[:100]!r}: {error}, expected {expected}") from None


def encoded(text: str) -> bytes:
    """Of any string: the environment and a client may bring lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _mac(key: bytes, signed: str) -> str:
    return hmac.new(key, encoded(signed), hashlib.sha256).hexdigest()
