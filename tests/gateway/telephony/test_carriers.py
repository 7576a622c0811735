"""Who may call: what is asked of each carrier, by its settings."""

import base64

import msgspec
import pytest
from plivo.utils.signature_v3 import construct_get_url, get_signature_v3
from twilio.request_validator import RequestValidator

from tests.gateway.telephony.test_signatures import BODY, KEY, NOW_S, OF_BODY
from tests.support.clock import Clock
from voice_runtime.errors import ConfigError, PeerError
from voice_runtime.gateway.carriers import CarrierAccess, carrier_and_token, target_of
from voice_runtime.pipeline.config import (
    CarrierSettings,
    PlivoSettings,
    TelephonySettings,
    TelnyxSettings,
    TwilioSettings,
    VonageSettings,
)

SECRET = "0123456789abcdef0123456789abcdef"
ENVIRON = {"SECRET": SECRET, "TOKEN": "a-token_of.ours~1", "SHORT": "a-token_of.ours", "KEY": KEY, "EMPTY": ""}
TOKEN = ENVIRON["TOKEN"]
URL = "https://voice.example.org"
LOCAL_URL = "http://localhost:8000"
ALL = TelephonySettings(
    public_url=URL,
    twilio=TwilioSettings(auth_token_env="SECRET"),
    plivo=PlivoSettings(auth_token_env="SECRET", token_env="TOKEN"),
    telnyx=TelnyxSettings(public_key_env="KEY", token_env="TOKEN"),
    vonage=VonageSettings(token_env="TOKEN"),
    exotel=CarrierSettings(token_env="TOKEN"),
)


def access(settings: TelephonySettings = ALL, host: str = "127.0.0.1", clock: Clock | None = None) -> CarrierAccess:
    return CarrierAccess(settings, host, ENVIRON, most_wrong=3, clock=clock or Clock(NOW_S))


def handshake(
    carriers: CarrierAccess, carrier: str, token: str = "", client: str = "192.0.2.1", **headers: str
) -> str | None:
    """The code with which it is refused; None when the carrier may call."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    target = f"/telephony/{carrier}" + (f"/{token}" if token else "")
    try:
        carriers.check_handshake(carrier, target, named, token, client)
    except PeerError as error:
        return error.code
    return None


def twilio(token: str = SECRET) -> str:
    return str(RequestValidator(token).compute_signature("wss://voice.example.org/telephony/twilio", {}))


def plivo(nonce: str, path_token: str = TOKEN) -> dict[str, str]:
    url = f"{URL}/telephony/plivo/{path_token}"
    signature = get_signature_v3(SECRET, construct_get_url(url, {}).decode(), nonce).decode()
    return {"x_plivo_signature_v3": signature, "x_plivo_signature_v3_nonce": nonce}


@pytest.mark.parametrize("carrier", ["jambonz", "", "TWILIO", "twilio/", "calls", "public_url"])
def test_a_carrier_that_is_not_set_up_may_not_call(carrier: str) -> None:
    assert handshake(access(), carrier) == "no_such_carrier"
    assert handshake(access(TelephonySettings()), "twilio") == "no_such_carrier"


def test_twilio_may_call_with_its_signature_over_the_public_url_and_not_without() -> None:
    assert handshake(access(), "twilio", x_twilio_signature=twilio()) is None
    assert handshake(access(), "twilio", x_twilio_signature=twilio("another")) == "bad_signature"
    assert handshake(access(), "twilio", authorization=f"Bearer {SECRET}") == "bad_signature"
    elsewhere = TelephonySettings(public_url=f"{URL}:8443/voice", twilio=ALL.twilio)
    assert handshake(access(elsewhere), "twilio", x_twilio_signature=twilio()) == "bad_signature"


def test_where_signature_and_token_are_set_both_are_asked() -> None:
    carriers = access()
    assert handshake(carriers, "plivo", TOKEN, **plivo("1")) is None
    assert handshake(carriers, "plivo", TOKEN) == "bad_signature"
    assert handshake(carriers, "plivo", "x" * 16, **plivo("2", "x" * 16)) == "bad_token"


def test_a_handshake_with_a_nonce_that_has_come_before_is_refused_and_a_refused_one_does_not_use_it_up() -> None:
    carriers = access()
    assert handshake(carriers, "plivo", "x" * 16, **plivo("1", "x" * 16)) == "bad_token"
    assert handshake(carriers, "plivo", TOKEN, **plivo("1")) is None
    assert handshake(carriers, "plivo", TOKEN, **plivo("1")) == "replayed"
    assert handshake(carriers, "plivo", TOKEN, **plivo("2")) is None


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"user:{password}".encode()).decode()


@pytest.mark.parametrize("carrier", ["vonage", "exotel", "telnyx"])
@pytest.mark.parametrize("token", [TOKEN, "wrong-token_of.ours", TOKEN + "x", TOKEN[:-1], "", "\u00e9"])
def test_a_token_opens_from_the_path_and_from_authorization_and_only_the_right_one(carrier: str, token: str) -> None:
    code = None if token == TOKEN else "bad_token"
    assert handshake(access(), carrier, token) == code
    assert handshake(access(), carrier, authorization=f"Bearer {token}") == code
    assert handshake(access(), carrier, authorization=f"bearer {token}") == code
    assert handshake(access(), carrier, authorization=basic(token)) == code
    assert handshake(access(), carrier, authorization=token) == "bad_token"
    assert handshake(access(), carrier, authorization=f"Basic {token}") == "bad_token"


def test_a_signed_webhook_needs_no_token_and_comes_but_once() -> None:
    carriers = access()
    headers = {"telnyx-signature-ed25519": OF_BODY, "telnyx-timestamp": "1796000000"}
    with pytest.raises(PeerError, match="telnyx-signature-ed25519"):
        carriers.check_webhook("telnyx", "/", {"authorization": f"Bearer {TOKEN}"}, BODY)
    carriers.check_webhook("telnyx", "/", headers, BODY)
    with pytest.raises(PeerError) as refused:
        carriers.check_webhook("telnyx", "/", headers, BODY)
    assert refused.value.code == "replayed"


@pytest.mark.parametrize("name", ["twilio", "plivo", "telnyx", "vonage", "exotel", "asterisk", "freeswitch", "jambonz"])
def test_a_carrier_without_a_secret_may_call_on_loopback_alone(name: str) -> None:
    local, public = (msgspec.convert({name: {}, "public_url": url}, TelephonySettings) for url in (LOCAL_URL, URL))
    assert handshake(access(local), name) is None
    with pytest.raises(ConfigError, match=rf"telephony\.{name} lets everybody call"):
        access(local, "0.0.0.0")
    with pytest.raises(ConfigError, match=f"lets everybody call at {URL}"):
        access(public)


def test_telnyx_needs_a_token_since_its_key_signs_no_handshake() -> None:
    keyed = TelephonySettings(public_url=URL, telnyx=TelnyxSettings(public_key_env="KEY"))
    with pytest.raises(ConfigError, match="expected token_env"):
        access(keyed)


def test_a_browser_may_not_call_where_no_secret_is_asked() -> None:
    local = TelephonySettings(jambonz=CarrierSettings(), exotel=CarrierSettings(token_env="TOKEN"))
    for origin in ("https://evil.example", "http://localhost:8000", "null", ""):
        assert handshake(access(local), "jambonz", origin=origin) == "bad_origin"
        assert handshake(access(local), "exotel", origin=origin) == "bad_token"
        assert handshake(access(local), "exotel", TOKEN, origin=origin) is None  # media servers send one, too


@pytest.mark.parametrize("name", ["MISSING", "EMPTY"])
def test_a_variable_that_is_not_set_is_told_at_the_start(name: str) -> None:
    by_token = TelephonySettings(exotel=CarrierSettings(token_env=name))
    by_signature = TelephonySettings(public_url=URL, twilio=TwilioSettings(auth_token_env=name))
    for settings in (by_token, by_signature):
        with pytest.raises(ConfigError, match=f"{name} is not set"):
            access(settings)


def test_a_token_that_could_be_guessed_or_not_stand_in_a_path_is_refused_without_being_shown() -> None:
    settings = TelephonySettings(exotel=CarrierSettings(token_env="TOKEN"))
    for token in ("a-token_of.ours", "a token of ours, long", "a/token/of/ours/long", "x" * 201):
        with pytest.raises(ConfigError, match="expected 16 to 200 letters") as refused:
            CarrierAccess(settings, "127.0.0.1", {"TOKEN": token})
        assert token not in str(refused.value)


def test_wrong_tokens_end_the_guessing_and_then_a_right_one_is_not_looked_at() -> None:
    clock = Clock(NOW_S)
    carriers = access(clock=clock)
    assert [handshake(carriers, "exotel") for _ in range(4)] == ["bad_token"] * 3 + ["too_many_attempts"]
    assert handshake(carriers, "exotel", TOKEN) == "too_many_attempts"
    assert handshake(carriers, "exotel", TOKEN, client="192.0.2.2") is None
    clock.now_s += 61
    assert handshake(carriers, "exotel", TOKEN) is None


def test_wrong_signatures_are_counted_and_a_right_one_from_the_same_address_passes_for_all_that() -> None:
    carriers = access()
    assert [handshake(carriers, "twilio") for _ in range(4)] == ["bad_signature"] * 3 + ["too_many_attempts"]
    assert handshake(carriers, "twilio", x_twilio_signature=twilio()) is None


def test_the_stream_url_holds_the_token_and_the_path_of_the_public_url() -> None:
    settings = TelephonySettings(public_url=f"{URL}:8443/voice", twilio=ALL.twilio, exotel=ALL.exotel)
    assert access(settings).stream_url("twilio") == "wss://voice.example.org:8443/voice/telephony/twilio"
    assert access(settings).stream_url("exotel").endswith(f"/telephony/exotel/{TOKEN}")


def test_a_target_is_what_came_and_not_what_it_was_decoded_to() -> None:
    scope = {"path": "/telephony/a b", "raw_path": b"/telephony/a%20b", "query_string": b"x=%2f"}
    assert target_of(scope) == "/telephony/a%20b?x=%2f"
    assert target_of({"path": "/telephony/a", "query_string": b""}) == "/telephony/a"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/telephony/twilio", ("twilio", "")),
        ("/telephony/twilio/t", ("twilio", "t")),
        ("/telephony/twilio/", ("twilio", "")),
        ("/telephony/twilio/t/u", ("", "")),
        ("/telephony/", ("", "")),
    ],
)
def test_a_path_names_carrier_and_token(path: str, found: tuple[str, str]) -> None:
    assert carrier_and_token(path) == found


def test_no_secret_is_shown() -> None:
    assert SECRET not in repr(vars(access()))
    assert TOKEN not in repr(vars(access()))
