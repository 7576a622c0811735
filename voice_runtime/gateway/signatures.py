"""How carriers prove that a request comes from them. Sans-IO: reads no clock, knows no settings.

Sources: twilio.com/docs/usage/webhooks/webhooks-security; docs.plivo.com/docs/voice/xml/request/validation;
developers.telnyx.com, callbacks; developer.vonage.com, signed webhooks; RFC 2104, RFC 8032, RFC 7515.
"""

import base64
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from voice_runtime.errors import ConfigError, PeerError
from voice_runtime.gateway.tokens import encoded

TOLERANCE_S = 300.0
MOST_FIELDS = 200  # Twilio sends about thirty
_PORT = re.compile(r":[0-9]+$")
_OWN_PORTS = {"https": 443, "wss": 443, "http": 80, "ws": 80}
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)

Form = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as its carrier has signed it.

    url: in full, as the carrier calls it. headers: found by names in lower case. body: None of a WebSocket handshake.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class Scheme(Protocol):
    """A carrier's way to sign."""

    def check(self, request: Signed, now_s: float) -> bytes | None:
        """What can come but once; None when the scheme has nothing to tell a request from its repetition.

        now_s: Unix time.

        Raises:
            PeerError: bad_signature.
        """


def form_of(body: bytes) -> dict[str, list[str]]:
    """The fields of an application/x-www-form-urlencoded body; a name may come more than once.

    Raises:
        PeerError: bad_form.
    """
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise PeerError("bad_form", f"{error}, expected at most {MOST_FIELDS} URL-encoded fields in UTF-8") from None


@dataclass(frozen=True, slots=True)
class TwilioSignature:
    """HMAC-SHA1 over the URL and the sorted fields of a form.

    It names no time and no nonce: whoever has read a handshake can repeat it for as long as the auth token is the same.
    Only TLS keeps it from being read. Requests signed with a key of Twilio's "webhooks rules" are refused.
    """

    auth_token: str = field(repr=False)

    def check(self, request: Signed, now_s: float) -> None:
        form = form_of(request.body or b"")
        fields = "".join(name + value for name in sorted(form) for value in sorted(set(form[name])))
        given = encoded(request.headers.get("x-twilio-signature", ""))
        # Twilio signs some requests with the port and some without, whatever the URL has.
        expected = [self._mac(url + fields) for url in _with_and_without_port(request.url)]
        if not _is_any_of(given, expected):
            raise _bad("X-Twilio-Signature")

    def _mac(self, text: str) -> bytes:
        return base64.b64encode(hmac.new(encoded(self.auth_token), encoded(text), hashlib.sha1).digest())


@dataclass(frozen=True, slots=True)
class PlivoSignature:
    """HMAC-SHA256 over the URL with its query sorted, the sorted fields of a form, and a nonce. Version 3.

    The header may list several signatures, one for each of the account's tokens.
    """

    auth_token: str = field(repr=False)

    def check(self, request: Signed, now_s: float) -> bytes:
        nonce = request.headers.get("x-plivo-signature-v3-nonce", "")
        given = [encoded(part.strip()) for part in request.headers.get("x-plivo-signature-v3", "").split(",")]
        expected = [self._mac(f"{text}.{nonce}") for text in _plivo_texts(request)]
        if not nonce or not any(_is_any_of(one, expected) for one in given[:8]):
            raise _bad("X-Plivo-Signature-V3")
        return encoded(nonce)

    def _mac(self, text: str) -> bytes:
        return base64.b64encode(hmac.new(encoded(self.auth_token), encoded(text), hashlib.sha256).digest())


@dataclass(frozen=True, slots=True)
class TelnyxSignature:
    """Ed25519 over the time and the body of a webhook, which is good for five minutes.

    public_key: as the portal shows it, 32 bytes in base64.

    Raises:
        ConfigError: it is no such key.
    """

    public_key: str
    _key: Ed25519PublicKey = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            raw = base64.b64decode(self.public_key, validate=True)
            object.__setattr__(self, "_key", Ed25519PublicKey.from_public_bytes(raw))
        except ValueError as error:
            raise ConfigError(f"Telnyx's public key: {error}, expected 32 bytes in base64") from None

    def check(self, request: Signed, now_s: float) -> bytes:
        time_s = request.headers.get("telnyx-timestamp", "")
        signed = encoded(time_s) + b"|" + (request.body or b"")
        try:
            signature = base64.b64decode(request.headers.get("telnyx-signature-ed25519", ""), validate=True)
            self._key.verify(signature, signed)
        except (ValueError, InvalidSignature):
            raise _bad("telnyx-signature-ed25519") from None
        if not _TIMESTAMP.fullmatch(time_s):
            raise _bad("telnyx-timestamp")
        _check_age(int(time_s), now_s)
        return signed


class _JwtHeader(msgspec.Struct):
    alg: str


class _Claims(msgspec.Struct):
    iat: float
    exp: float | None = None
    payload_hash: str | None = None


@dataclass(frozen=True, slots=True)
class VonageSignature:
    """The JWT of signed webhooks as `Authorization: Bearer`, HS256 with the account's signature secret.

    A handshake has it when the NCCO's endpoint says `"authorization": {"type": "vonage"}`.
    """

    signature_secret: str = field(repr=False)

    def check(self, request: Signed, now_s: float) -> bytes:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        signed, _, given = token.rpartition(".")
        mac = hmac.new(encoded(self.signature_secret), encoded(signed), hashlib.sha256).digest()
        expected = base64.urlsafe_b64encode(mac).rstrip(b"=")
        if kind.lower() != "bearer" or not hmac.compare_digest(encoded(given), expected):
            raise _bad("Authorization")
        claims = _claims(signed)
        _check_age(claims.iat, now_s)
        if claims.exp is not None and now_s >= claims.exp:
            raise PeerError(
                "bad_signature", f"the JWT has expired {now_s - claims.exp:.0f} s ago, expected a newer one"
            )
        if request.body and claims.payload_hash != hashlib.sha256(request.body).hexdigest():
            raise PeerError("bad_signature", "payload_hash is of another body, expected that of this one")
        return expected


class Seen:
    """What has come once and may not come again. most: remembered, about 2 MB; older ones are forgotten.

    Only what a carrier has signed gets in here, so nobody else can make us forget.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._marks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, mark: bytes) -> None:
        """Raises PeerError: replayed."""
        key = hashlib.sha256(mark).digest()
        if key in self._marks:
            raise PeerError("replayed", "the same signed request has come before, expected each but once")
        self._marks[key] = None
        if len(self._marks) > self._most:
            self._marks.popitem(last=False)


def _bad(header: str) -> PeerError:
    return PeerError("bad_signature", f"{header} is missing or wrong, expected the carrier's, over the public_url")


def _is_any_of(given: bytes, expected: Sequence[bytes]) -> bool:
    """In a time that tells nothing about where they differ."""
    return sum(hmac.compare_digest(given, one) for one in expected) > 0


def _check_age(signed_s: float, now_s: float) -> None:
    if abs(now_s - signed_s) > TOLERANCE_S:
        found = f"it was signed {now_s - signed_s:.0f} s ago"
        raise PeerError("bad_signature", f"{found}, expected at most {TOLERANCE_S:.0f} s and clocks that agree")


def _with_and_without_port(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    bare = _PORT.sub("", parts.netloc)
    given = parts.netloc if bare != parts.netloc else f"{bare}:{_OWN_PORTS[parts.scheme]}"
    rest = url.partition("://")[2].removeprefix(parts.netloc)
    return f"{parts.scheme}://{bare}{rest}", f"{parts.scheme}://{given}{rest}"


def _plivo_texts(request: Signed) -> Iterator[str]:
    """What Plivo may have signed: of a handshake the documents leave open which scheme the URL has."""
    parts = urlsplit(request.url)
    query = parse_qs(parts.query, keep_blank_values=True)
    pairs = "&".join(f"{name}={value}" for name in sorted(query) for value in sorted(query[name]))
    schemes = {parts.scheme} if request.body is not None else {parts.scheme, parts.scheme.replace("ws", "http")}
    form = form_of(request.body or b"")
    fields = "".join(name + value for name in sorted(form) for value in sorted(form[name]))
    before = "?" if pairs or fields else ""
    between = "." if pairs and fields else ""
    for scheme in sorted(schemes):
        yield f"{scheme}://{parts.netloc}{parts.path}{before}{pairs}{between}{fields}"


def _claims(signed: str) -> _Claims:
    """Of a JWT whose signature is right. Raises PeerError: bad_signature."""
    try:
        header, claims = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in signed.split("."))
        if (alg := msgspec.json.decode(header, type=_JwtHeader).alg) != "HS256":
            raise PeerError("bad_signature", f"alg is {alg[:20]!r}, expected HS256")
        return msgspec.json.decode(claims, type=_Claims)
    except (ValueError, msgspec.DecodeError) as error:
        raise PeerError("bad_signature", f"the JWT's claims: {error}, expected those of a signed webhook") from None
