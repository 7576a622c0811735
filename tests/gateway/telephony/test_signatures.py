"""Signatures of carriers, made and checked by the carriers' own libraries."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlencode

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from plivo.utils.signature_v3 import construct_get_url, construct_post_url, get_signature_v3, validate_v3_signature
from twilio.request_validator import RequestValidator

from voice_runtime.errors import ConfigError, PeerError
from voice_runtime.gateway.signatures import (
    PlivoSignature,
    Scheme,
    Seen,
    Signed,
    TelnyxSignature,
    TwilioSignature,
    VonageSignature,
    form_of,
)

NOW_S = 1_796_000_000.0
TOKEN = "0123456789abcdef0123456789abcdef"
FORM_URL = "https://voice.example.org/telephony/twilio/voice"
STREAM_URL = "wss://voice.example.org/telephony/twilio"

names = st.text("ABCabc019_", min_size=1, max_size=8)
values = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
forms = st.dictionaries(names, st.lists(values, min_size=1, max_size=3), max_size=6)
paths = st.text("abz019-_~/", max_size=12)
queries = st.dictionaries(names, st.text("abc019 +&=.%", min_size=1, max_size=6), max_size=3)
ports = st.sampled_from(["", ":443", ":8443"])


class Fields(dict[str, list[str]]):
    """A form, as Twilio's library reads one with repeated names."""

    def getlist(self, name: str) -> list[str]:
        return self[name]


def refusal(scheme: Scheme, request: Signed, now_s: float = NOW_S) -> str | None:
    """The code with which a request is refused; None when it may pass."""
    try:
        scheme.check(request, now_s)
    except PeerError as error:
        return error.code
    return None


def posted(url: str, form: Mapping[str, list[str]], **headers: str) -> Signed:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Signed(url, named, urlencode(form, doseq=True).encode())


def other(signature: str) -> str:
    """With one character changed, and still base64."""
    return ("B" if signature[0] == "A" else "A") + signature[1:]


# Twilio


@settings(max_examples=30)
@given(form=forms, path=paths, query=queries, port=ports)
def test_what_twilios_library_signs_passes_with_and_without_the_port(
    form: dict[str, list[str]], path: str, query: dict[str, str], port: str
) -> None:
    rest = f"/{path}" + (f"?{urlencode(query)}" if query else "")
    validator = RequestValidator(TOKEN)
    for given_port in (port, "" if port else ":443"):
        signature = validator.compute_signature(f"https://voice.example.org{given_port}{rest}", Fields(form))
        assert validator.validate(f"https://voice.example.org{port}{rest}", Fields(form), signature)
        request = posted(f"https://voice.example.org{port}{rest}", form, x_twilio_signature=signature)
        assert refusal(TwilioSignature(TOKEN), request) is None


@settings(max_examples=30)
@given(form=forms, added=st.tuples(names, values))
def test_a_form_that_twilio_has_not_signed_is_refused(form: dict[str, list[str]], added: tuple[str, str]) -> None:
    signature = RequestValidator(TOKEN).compute_signature(FORM_URL, Fields(form))
    name, value = added
    changed = {**form, name: [*form.get(name, []), value + "x"]}
    passes = RequestValidator(TOKEN).validate(FORM_URL, Fields(changed), signature)
    request = posted(FORM_URL, changed, x_twilio_signature=signature)
    assert (refusal(TwilioSignature(TOKEN), request) is None) == passes


def test_twilios_own_example_passes() -> None:
    """Source: twilio-python 9.13.0, its tests of the validator."""
    form = {"CallSid": ["CA1234567890ABCDE"], "Digits": ["1234"], "From": ["+14158675309"], "To": ["+18005551212"]}
    form["Caller"] = form["From"]
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    request = posted(url, form, x_twilio_signature="RSOYDt4T1cUTdK1PDd93/VVr8B8=")
    assert refusal(TwilioSignature("12345"), request) is None


@pytest.mark.parametrize("url", [STREAM_URL, "wss://voice.example.org:443/telephony/twilio"])
def test_a_handshake_is_signed_over_the_wss_url_alone(url: str) -> None:
    signature = RequestValidator(TOKEN).compute_signature(url, {})
    assert refusal(TwilioSignature(TOKEN), Signed(STREAM_URL, {"x-twilio-signature": signature})) is None
    for wrong in (STREAM_URL + "/", STREAM_URL.replace("wss", "https"), STREAM_URL.replace("voice", "evil")):
        assert refusal(TwilioSignature(TOKEN), Signed(wrong, {"x-twilio-signature": signature})) == "bad_signature"
    assert refusal(TwilioSignature(TOKEN + "x"), Signed(url, {"x-twilio-signature": signature})) == "bad_signature"
    assert refusal(TwilioSignature(TOKEN), Signed(url, {"x-twilio-signature": other(signature)})) == "bad_signature"


@pytest.mark.parametrize("signature", ["", "A", "\u00e9", "A" * 28, "A" * 100_000])
def test_what_is_no_signature_is_refused_by_every_scheme(signature: str) -> None:
    names = ("x-twilio-signature", "x-plivo-signature-v3", "telnyx-signature-ed25519", "authorization")
    headers = {**dict.fromkeys(names, signature), "x-plivo-signature-v3-nonce": "1", "telnyx-timestamp": "1796000000"}
    headers["authorization"] = f"Bearer {signature}"
    for scheme in (TwilioSignature(TOKEN), PlivoSignature(TOKEN), TelnyxSignature(KEY), VonageSignature(TOKEN)):
        assert refusal(scheme, Signed(STREAM_URL, headers)) == "bad_signature"
        assert refusal(scheme, Signed(STREAM_URL, {})) == "bad_signature"


@pytest.mark.parametrize("body", [b"a=%ff", b"a=\xc3\xa9", b"&".join([b"a=1"] * 201)])
def test_a_body_that_is_no_form_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(PeerError, match="URL-encoded") as refused:
        form_of(body)
    assert refused.value.code == "bad_form"


# Plivo


@settings(max_examples=30)
@given(path=paths, query=queries, nonce=st.text("0123456789", min_size=1), scheme=st.sampled_from(["wss", "https"]))
def test_a_handshake_that_plivos_library_signs_passes(
    path: str, query: dict[str, str], nonce: str, scheme: str
) -> None:
    rest = f"voice.example.org/{path}" + (f"?{urlencode(query)}" if query else "")
    signature = get_signature_v3(TOKEN, construct_get_url(f"{scheme}://{rest}", {}).decode(), nonce).decode()
    headers = {"x-plivo-signature-v3": signature, "x-plivo-signature-v3-nonce": nonce}
    assert validate_v3_signature("GET", f"https://{rest}", nonce, TOKEN, signature) == (scheme == "https")
    assert refusal(PlivoSignature(TOKEN), Signed(f"wss://{rest}", headers)) is None
    assert refusal(PlivoSignature(TOKEN), Signed(f"wss://{rest}x", headers)) == "bad_signature"
    headers["x-plivo-signature-v3-nonce"] += "1"
    assert refusal(PlivoSignature(TOKEN), Signed(f"wss://{rest}", headers)) == "bad_signature"


@settings(max_examples=30)
@given(form=forms, query=queries)
def test_a_webhook_that_plivos_library_signs_passes(form: dict[str, list[str]], query: dict[str, str]) -> None:
    url = "https://voice.example.org/answer" + (f"?{urlencode(query)}" if query else "")
    signature = get_signature_v3(TOKEN, construct_post_url(url, form).decode(), "7").decode()
    headers = {"x_plivo_signature_v3_nonce": "7", "x_plivo_signature_v3": f"{other(signature)}, {signature}"}
    assert validate_v3_signature("POST", url, "7", TOKEN, signature, form)
    assert refusal(PlivoSignature(TOKEN), posted(url, form, **headers)) is None
    assert refusal(PlivoSignature(TOKEN), posted(url, {**form, "x": ["1"]}, **headers)) == "bad_signature"
    assert refusal(PlivoSignature(TOKEN + "x"), posted(url, form, **headers)) == "bad_signature"


def test_a_signature_over_no_nonce_is_refused() -> None:
    signature = get_signature_v3(TOKEN, STREAM_URL, "").decode()
    assert refusal(PlivoSignature(TOKEN), Signed(STREAM_URL, {"x-plivo-signature-v3": signature})) == "bad_signature"


# Telnyx: made with PyNaCl 1.6.2 from the seed 0 to 31, and passed by verify_webhook_signature of telnyx 4.189.0.

KEY = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
BODY = b'{"data":{"event_type":"streaming.started"}}'
OF_BODY = "G1vuGE9XZ3VVAy5avfr9HH7Qz5uDCoi/JljewIwuboWPbMEM4D/qsIzBiWc20du2Y6yapCF3otKGkHfKPZAkCQ=="


def event(body: bytes = BODY, signature: str = OF_BODY, timestamp: str = "1796000000") -> Signed:
    return Signed("", {"telnyx-signature-ed25519": signature, "telnyx-timestamp": timestamp}, body)


def test_a_webhook_that_telnyx_has_signed_passes_and_no_other() -> None:
    assert refusal(TelnyxSignature(KEY), event()) is None
    assert refusal(TelnyxSignature(KEY), event(body=BODY + b" ")) == "bad_signature"
    assert refusal(TelnyxSignature(KEY), event(timestamp="1796000001")) == "bad_signature"
    assert refusal(TelnyxSignature(KEY), event(signature=other(OF_BODY))) == "bad_signature"
    another = base64.b64encode(bytes([1] * 32)).decode()
    assert refusal(TelnyxSignature(another), event()) == "bad_signature"


@pytest.mark.parametrize(("late_s", "code"), [(0, None), (300, None), (-300, None), (301, "bad_signature")])
def test_a_signed_time_is_good_for_five_minutes(late_s: float, code: str | None) -> None:
    assert refusal(TelnyxSignature(KEY), event(), NOW_S + late_s) == code
    assert refusal(VonageSignature(TOKEN), bearer(iat=NOW_S), NOW_S + late_s) == code


def test_a_signed_time_from_the_future_is_refused() -> None:
    assert refusal(TelnyxSignature(KEY), event(), NOW_S - 301) == "bad_signature"
    assert refusal(VonageSignature(TOKEN), bearer(iat=NOW_S), NOW_S - 301) == "bad_signature"


@pytest.mark.parametrize("key", ["", "secret", KEY[:-4], KEY + KEY, "\u00e9"])
def test_a_key_that_is_none_is_told_at_the_start(key: str) -> None:
    with pytest.raises(ConfigError, match="expected 32 bytes in base64"):
        TelnyxSignature(key)


# Vonage


def bearer(body: bytes | None = None, key: object = TOKEN, alg: str = "HS256", **claims: float | str) -> Signed:
    token = jwt.encode(claims, key, alg, headers={"typ": "JWT"})
    return Signed(STREAM_URL, {"authorization": f"Bearer {token}"}, body)


def test_a_handshake_with_vonages_jwt_passes_and_one_that_was_signed_otherwise_does_not() -> None:
    request = bearer(iat=1_796_000_000, jti="1", iss="Vonage", api_key="abcd")
    assert refusal(VonageSignature(TOKEN), request) is None
    assert refusal(VonageSignature(TOKEN + "x"), request) == "bad_signature"
    private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    for alg, key in (("none", ""), ("HS512", TOKEN * 2), ("RS256", private)):
        assert refusal(VonageSignature(TOKEN), bearer(None, key, alg, iat=NOW_S)) == "bad_signature"


@pytest.mark.parametrize(("alg", "code"), [("HS256", None), ("none", "bad_signature"), ("RS256", "bad_signature")])
def test_a_jwt_that_names_another_algorithm_is_refused_though_its_mac_is_right(alg: str, code: str | None) -> None:
    parts = (b'{"alg":"%s"}' % alg.encode(), b'{"iat":1796000000}')
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    mac = base64.urlsafe_b64encode(hmac.digest(TOKEN.encode(), signed, "sha256")).rstrip(b"=")
    token = f"{signed.decode()}.{mac.decode()}"
    assert refusal(VonageSignature(TOKEN), Signed("", {"authorization": f"bearer {token}"})) == code


def test_a_jwt_without_a_time_or_past_its_end_is_refused() -> None:
    assert refusal(VonageSignature(TOKEN), bearer(jti="1")) == "bad_signature"
    assert refusal(VonageSignature(TOKEN), bearer(iat=NOW_S, exp=NOW_S + 1)) is None
    assert refusal(VonageSignature(TOKEN), bearer(iat=NOW_S, exp=NOW_S)) == "bad_signature"


def test_a_jwt_of_another_body_is_refused() -> None:
    of_body = hashlib.sha256(BODY).hexdigest()
    assert refusal(VonageSignature(TOKEN), bearer(BODY, iat=NOW_S, payload_hash=of_body)) is None
    assert refusal(VonageSignature(TOKEN), bearer(BODY + b" ", iat=NOW_S, payload_hash=of_body)) == "bad_signature"
    assert refusal(VonageSignature(TOKEN), bearer(BODY, iat=NOW_S)) == "bad_signature"


# All


def test_what_was_seen_comes_but_once_and_the_oldest_is_forgotten_when_there_is_too_much() -> None:
    seen = Seen(most=2)
    seen.add(b"a")
    for mark in (b"b", b"c"):
        seen.add(mark)
        with pytest.raises(PeerError) as refused:
            seen.add(mark)
        assert refused.value.code == "replayed"
    assert len(seen) == 2
    seen.add(b"a")


def test_no_secret_is_shown() -> None:
    schemes: list[Scheme] = [TwilioSignature(TOKEN), PlivoSignature(TOKEN), VonageSignature(TOKEN)]
    assert TOKEN not in repr(schemes)
    for scheme in schemes:
        with pytest.raises(PeerError) as refused:
            scheme.check(Signed(STREAM_URL, {}), NOW_S)
        assert TOKEN not in str(refused.value)
