"""Minted tokens: good for their time, for nobody else's key, and forged by nobody."""

import hashlib
import hmac
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.errors import PeerError
from voice_runtime.gateway import tokens

KEY = tokens.key_of("secret")
NOW_S = 1_800_000_000.0


@given(ttl_s=st.integers(1, tokens.MOST_TTL_S), now_s=st.floats(1e9, 4e9))
def test_a_token_expires_when_its_time_is_over_to_the_millisecond(ttl_s: int, now_s: float) -> None:
    expires_s = tokens.expiry_s(KEY, tokens.mint(KEY, ttl_s, now_s))
    assert expires_s is not None
    assert math.isclose(expires_s, now_s + ttl_s, rel_tol=0, abs_tol=0.001)


def test_a_token_is_good_after_a_restart_and_at_another_gateway_with_the_same_api_key_alone() -> None:
    token = tokens.mint(tokens.key_of("secret"), 60, NOW_S)
    assert tokens.expiry_s(tokens.key_of("secret"), token) == NOW_S + 60
    assert tokens.expiry_s(tokens.key_of("Secret"), token) is None


def test_a_token_is_signed_with_a_key_that_is_slow_to_guess() -> None:
    signed, _, mac = tokens.mint(KEY, 60, NOW_S).rpartition(".")
    assert mac == hmac.new(KEY, signed.encode(), hashlib.sha256).hexdigest()
    cheap = {b"secret", hashlib.sha256(b"secret").digest(), hmac.new(b"secret", b"", hashlib.sha256).digest()}
    assert KEY not in cheap
    assert hashlib.scrypt(b"secret", salt=b"voice_runtime session tokens", n=16_384, r=8, p=1, dklen=32) == KEY


def test_no_two_tokens_are_alike() -> None:
    assert len({tokens.mint(KEY, 60, NOW_S) for _ in range(1_000)}) == 1_000


def test_a_token_can_stand_in_an_address_as_it_is() -> None:
    assert all(letter.isalnum() or letter in "-_." for letter in tokens.mint(KEY, 60, NOW_S))


@given(at=st.integers(min_value=0), letter=st.characters())
def test_a_token_with_any_letter_changed_is_not_ours(at: int, letter: str) -> None:
    token = tokens.mint(KEY, 60, NOW_S)
    at %= len(token)
    changed = token[:at] + letter + token[at + 1 :]
    assert (tokens.expiry_s(KEY, changed) is None) == (changed != token)


@pytest.mark.parametrize("forged", ["", ".", "..", "9999999999999..", "\ud800.\ud800", "9999999999999.id." + "0" * 64])
def test_what_nobody_minted_is_not_ours(forged: str) -> None:
    assert tokens.expiry_s(KEY, forged) is None


@given(st.text())
def test_no_text_brings_anything_but_a_refusal(text: str) -> None:
    assert tokens.expiry_s(KEY, text) is None


@pytest.mark.parametrize(("body", "ttl_s"), [(b"", 60), (b"{}", 60), (b'{"ttl_s":1}', 1), (b' {"ttl_s": 3600} ', 3600)])
def test_a_time_is_taken_as_asked_and_is_a_minute_when_it_is_not(body: bytes, ttl_s: int) -> None:
    assert tokens.requested_ttl_s(body) == ttl_s


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"ttl_s":0}', b'{"ttl_s":-1}', b'{"ttl_s":3601}', b'{"ttl_s":1e400}', b'{"ttl_s":1.5}', b'{"ttl_s":"60"}'),
        *(b'{"ttl_s":null}', b'{"ttl_s":true}', b'{"ttl":60}', b"60", b"[]", b"null", b"{", b"\xff", b"[" * 1_000),
    ],
)
def test_any_other_time_is_refused_with_found_and_expected(body: bytes) -> None:
    with pytest.raises(PeerError, match=r"expected .* whole number of seconds from 1 to 3600") as refused:
        tokens.requested_ttl_s(body)
    assert refused.value.code == "bad_ttl"
    assert repr(body[:100]) in str(refused.value)
