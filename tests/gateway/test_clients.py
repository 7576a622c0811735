"""Who counts as one client, and how often one may try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from voice_runtime.errors import ConfigError, PeerError
from voice_runtime.gateway.clients import (
    MOST_CLIENTS,
    THIS_MACHINE,
    WINDOW_S,
    Attempts,
    client_name,
    trusted_proxies,
)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),  # as a socket of both families tells it
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
        ("x" * 1_000, "x" * 64),
    ],
)
@pytest.mark.parametrize("behind_proxy", [False, True])
def test_a_client_is_its_address_or_the_network_that_it_can_choose_from(
    address: str, name: str, behind_proxy: bool
) -> None:
    assert client_name(address, behind_proxy=behind_proxy) == name


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_this_machine_unless_a_proxy_may_have_said_so(address: str) -> None:
    assert client_name(address, behind_proxy=False) == THIS_MACHINE
    assert client_name(address, behind_proxy=True) != THIS_MACHINE


def test_proxies_are_addresses_and_networks() -> None:
    assert trusted_proxies("") == ()
    assert trusted_proxies("127.0.0.1, ::1,10.0.0.0/8") == ("127.0.0.1", "::1", "10.0.0.0/8")


@pytest.mark.parametrize("listed", ["*", "proxy", "127.0.0.1,", " ", "10.0.0.1/8", "10.0.0.0/33", "127.0.0.1;::1"])
def test_what_is_neither_is_refused_with_found_and_expected(listed: str) -> None:
    with pytest.raises(ConfigError, match=r"forwarded-allow-ips has .*, expected addresses or networks of proxies"):
        trusted_proxies(listed)


def may_try(attempts: Attempts, client: str) -> bool:
    try:
        attempts.check(client)
    except PeerError:
        return False
    attempts.add(client)
    return True


@given(most=st.integers(1, 5), pauses_s=st.lists(st.floats(0, 2 * WINDOW_S), max_size=60))
def test_in_no_minute_are_there_more_attempts_than_the_limit_and_never_is_one_refused_below_it(
    most: int, pauses_s: list[float]
) -> None:
    clock = Clock()
    attempts, tried_s = Attempts(most, clock), list[float]()
    for pause_s in pauses_s:
        clock.now_s += pause_s
        within = sum(at_s > clock.now_s - WINDOW_S for at_s in tried_s)
        assert may_try(attempts, "192.0.2.1") == (within < most)
        if within < most:
            tried_s.append(clock.now_s)


def test_a_refusal_tells_how_many_there_were_and_may_be() -> None:
    attempts = Attempts(2, Clock())
    assert may_try(attempts, "192.0.2.1")
    assert may_try(attempts, "192.0.2.1")
    with pytest.raises(PeerError, match="2 attempts came within a minute, expected at most 2") as refused:
        attempts.check("192.0.2.1")
    assert refused.value.code == "too_many_attempts"


def test_the_attempts_of_one_client_cost_another_nothing() -> None:
    attempts = Attempts(1, Clock())
    assert may_try(attempts, "192.0.2.1")
    assert not may_try(attempts, "192.0.2.1")
    assert may_try(attempts, "192.0.2.2")


def test_this_machine_may_try_as_often_as_it_likes() -> None:
    attempts = Attempts(1, Clock())
    assert all(may_try(attempts, THIS_MACHINE) for _ in range(100))


def test_clients_are_forgotten_after_a_minute_and_the_quietest_of_too_many_at_once() -> None:
    clock = Clock()
    attempts = Attempts(1, clock)
    for number in range(MOST_CLIENTS + 10):
        assert may_try(attempts, str(number))
    assert len(attempts) == MOST_CLIENTS
    assert may_try(attempts, "0")
    assert not may_try(attempts, str(MOST_CLIENTS))
    clock.now_s += WINDOW_S
    assert may_try(attempts, "new")
    assert len(attempts) == 1
