"""What stands before the doors, over real sockets: tokens, other hosts' pages, and clients that try too often."""

import json
import logging

import pytest
from websockets.exceptions import InvalidStatus

from tests.support.clock import Clock
from tests.support.gateway import Doors, opened
from voice_runtime.gateway.auth import Access
from voice_runtime.pipeline.config import LimitSettings

KEY = "s3cr3t-key"
BEARER = f"Bearer {KEY}"
APP = "https://app.example.org"
TWO = LimitSettings(attempts_per_minute=2)


async def minted(doors: Doors, ttl_s: int = 60) -> str:
    answer = await doors.ask("POST", "/v1/tokens", b'{"ttl_s":%d}' % ttl_s, authorization=BEARER)
    return str(answer.json()["token"])


async def status(doors: Doors, query: str = "", **headers: str) -> int:
    """The HTTP status of a refused handshake."""
    with pytest.raises(InvalidStatus) as refused:
        await doors.first(query, **headers)
    return refused.value.response.status_code


async def test_the_api_key_mints_a_token_and_the_token_opens_a_session() -> None:
    async with opened(Access("127.0.0.1", KEY)) as doors:
        answer = await doors.ask("POST", "/v1/tokens", b'{"ttl_s":90}', authorization=BEARER)
        assert (answer.status, answer.json()["expires_in_s"]) == (200, 90)
        assert answer.headers["cache-control"] == "no-store"
        token = answer.json()["token"]
        assert (await doors.first(f"token={token}"))[0]["type"] == "ready"
        assert (await doors.first(authorization=f"Bearer {token}"))[0]["type"] == "ready"
        assert (await doors.ask("POST", "/v1/tokens", authorization=BEARER)).json()["expires_in_s"] == 60


async def test_a_minted_token_mints_no_other_and_shows_nothing_of_the_server() -> None:
    async with opened(Access("127.0.0.1", KEY)) as doors:
        bearer = f"Bearer {await minted(doors)}"
        for method, path in (("POST", "/v1/tokens"), ("GET", "/debug/resources"), ("GET", "/metrics")):
            answer = await doors.ask(method, path, authorization=bearer)
            assert (answer.status, answer.json()["code"]) == (401, "bad_token")
        assert (await doors.ask("GET", "/metrics", authorization=BEARER)).status == 200


async def test_a_session_goes_on_when_its_token_expires_and_cannot_be_taken_up_again_with_it() -> None:
    clock = Clock(now_s=1_800_000_000.0)
    async with opened(Access("127.0.0.1", KEY, clock=clock)) as doors:
        token = await minted(doors)
        async with doors.call(f"token={token}") as socket:
            resume = json.loads(await socket.recv())["resume"]
            clock.now_s += 61
            await socket.send('{"type":"text","text":"Hello."}')
            assert json.loads(await socket.recv())["type"] == "reply_started"
            assert await status(doors, f"token={token}&resume={resume}") == 401
            assert (await doors.first(f"token={await minted(doors)}&resume={resume}"))[0]["type"] == "ready"


@pytest.mark.parametrize("body", [b'{"ttl_s":3601}', b"{", b'{"ttl_s":60}' + b" " * 2_000, b" " * 2_000_000])
async def test_a_request_for_a_token_that_does_not_fit_is_refused_by_name(body: bytes) -> None:
    async with opened(Access("127.0.0.1", KEY)) as doors:
        answer = await doors.ask("POST", "/v1/tokens", body, authorization=BEARER)
        assert (answer.status, answer.json()["code"]) == (400, "bad_ttl")


async def test_without_an_api_key_there_is_nothing_to_mint_from() -> None:
    async with opened(Access("127.0.0.1")) as doors:
        answer = await doors.ask("POST", "/v1/tokens")
        assert (answer.status, answer.json()["code"]) == (409, "no_api_key")


async def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="voice_runtime")
    async with opened(Access("127.0.0.1", KEY)) as doors:
        token = await minted(doors)
        await doors.first(f"token={token}")
        assert await status(doors, f"token={token}x") == 401
    assert "refused: bad_token" in caplog.text
    assert KEY not in caplog.text
    assert token.split(".")[1] not in caplog.text


@pytest.mark.parametrize("path", ["/v1/tokens", "/v1/webrtc/offer"])
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_browser_that_asks_for_a_page_on_the_list_gets_leave_without_a_token(path: str, method: str) -> None:
    async with opened(Access("127.0.0.1", KEY, frozenset({APP}))) as doors:
        asked = {
            "origin": APP,
            "access_control_request_method": method,
            "access_control_request_headers": "authorization",
        }
        answer = await doors.ask("OPTIONS", path, None, **asked)
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == APP
        assert method in answer.headers["access-control-allow-methods"].split(", ")
        assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
        assert "access-control-allow-credentials" not in answer.headers
        assert answer.headers["vary"] == "Origin"


async def test_a_page_on_the_list_can_read_answers_and_refusals_and_others_can_read_neither() -> None:
    async with opened(Access("127.0.0.1", KEY, frozenset({APP, "https://second.example.org"}))) as doors:
        for bearer, expected in ((BEARER, 200), ("Bearer wrong", 401)):
            for origin in (APP, "https://second.example.org"):
                answer = await doors.ask("POST", "/v1/tokens", origin=origin, authorization=bearer)
                assert (answer.status, answer.headers["access-control-allow-origin"]) == (expected, origin)
                assert answer.headers["access-control-expose-headers"] == "Location"
                assert answer.headers["vary"] == "Origin"
        for origin in ("https://evil.example", "null"):
            for method in ("POST", "OPTIONS"):
                asked = {"origin": origin, "access_control_request_method": "POST", "authorization": BEARER}
                answer = await doors.ask(method, "/v1/tokens", None, **asked)
                assert (answer.status, answer.json()["code"]) == (403, "bad_origin")
                assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_what_is_not_the_api_is_shared_with_no_other_page() -> None:
    async with opened(Access("127.0.0.1", origins=frozenset({APP}))) as doors:
        for path in ("/", "/health", "/metrics"):
            answer = await doors.ask("GET", path, origin=APP)
            assert (answer.status, answer.json()["code"]) == (403, "bad_origin")
            assert "access-control-allow-origin" not in answer.headers


async def test_our_own_page_gets_no_more_leave_than_a_page_of_the_same_origin_needs() -> None:
    async with opened(Access("127.0.0.1", KEY, frozenset({APP}))) as doors:
        own = f"http://localhost:{doors.port}"
        answer = await doors.ask("POST", "/v1/tokens", origin=own, authorization=BEARER)
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers
        assert (
            await doors.ask("OPTIONS", "/v1/tokens", origin=own, access_control_request_method="POST")
        ).status == 401


async def test_a_page_on_the_list_may_open_a_socket_and_no_other_page() -> None:
    async with opened(Access("127.0.0.1", origins=frozenset({APP}))) as doors:
        assert (await doors.first(origin=APP))[0]["type"] == "ready"
        assert await status(doors, origin="https://app.example.org:8443") == 403
        assert (await doors.ask("GET", "/v1/pcm", origin=APP, host="evil.example")).json()["code"] == "bad_host"


def behind_proxy(token: str | None = None) -> Access:
    return Access("127.0.0.1", token, behind_proxy=True)


async def test_a_client_that_tries_too_often_is_told_to_come_later_and_others_are_let_in() -> None:
    async with opened(behind_proxy(), TWO, ["127.0.0.1"]) as doors:
        for _ in range(2):
            assert (await doors.first(x_forwarded_for="192.0.2.1"))[0]["type"] == "ready"
        event, code = await doors.first(x_forwarded_for="192.0.2.1")
        assert (event["type"], event["code"], code) == ("error", "too_many_attempts", 1013)
        answer = await doors.ask("POST", "/v1/webrtc/offer", x_forwarded_for="192.0.2.1")
        assert (answer.status, answer.json()["code"]) == (429, "too_many_attempts")
        assert (await doors.first(x_forwarded_for="192.0.2.2"))[0]["type"] == "ready"


async def test_who_may_not_open_another_session_may_still_end_the_one_it_has() -> None:
    async with opened(behind_proxy(), TWO, ["127.0.0.1"]) as doors:
        for _ in range(3):
            await doors.ask("POST", "/v1/webrtc/offer", x_forwarded_for="192.0.2.1")
        for method in ("PATCH", "DELETE"):
            answer = await doors.ask(method, "/v1/webrtc/0123", x_forwarded_for="192.0.2.1")
            assert answer.status in (404, 405)  # it has come through to the doors


async def test_wrong_tokens_at_any_door_end_the_guessing_and_then_a_right_one_is_not_looked_at() -> None:
    async with opened(behind_proxy(KEY), TWO, ["127.0.0.1"]) as doors:
        for path in ("/metrics", "/debug/resources"):
            assert (await doors.ask("GET", path, x_forwarded_for="192.0.2.1")).status == 401
        for bearer in ("Bearer wrong", BEARER):
            for method, path in (("GET", "/metrics"), ("POST", "/v1/tokens"), ("DELETE", "/v1/webrtc/0123")):
                answer = await doors.ask(method, path, x_forwarded_for="192.0.2.1", authorization=bearer)
                assert (answer.status, answer.json()["code"]) == (429, "too_many_attempts")
        event, _ = await doors.first(f"token={KEY}", x_forwarded_for="192.0.2.1")
        assert event["code"] == "too_many_attempts"
        assert (await doors.ask("GET", "/metrics", x_forwarded_for="192.0.2.2", authorization=BEARER)).status == 200


async def test_right_tokens_at_other_doors_are_no_attempts() -> None:
    async with opened(behind_proxy(KEY), TWO, ["127.0.0.1"]) as doors:
        for _ in range(5):
            await minted(doors)
        assert (await doors.first(f"token={KEY}"))[0]["type"] == "ready"


async def test_nobody_is_believed_about_who_he_is_without_a_trusted_proxy() -> None:
    limits = LimitSettings(attempts_per_minute=1, sessions_per_client=1)
    async with opened(Access("127.0.0.1"), limits) as doors:
        for _ in range(3):
            assert (await doors.first(x_forwarded_for="192.0.2.1"))[0]["type"] == "ready"
    async with opened(behind_proxy(), limits, ["192.0.2.9"]) as doors:
        assert (await doors.first(x_forwarded_for="192.0.2.1"))[0]["type"] == "ready"
        assert (await doors.first(x_forwarded_for="192.0.2.2"))[0]["code"] == "too_many_attempts"


async def test_a_client_behind_a_proxy_is_who_the_proxy_says_and_not_who_the_client_says() -> None:
    async with opened(behind_proxy(), LimitSettings(sessions_per_client=1), ["127.0.0.1"]) as doors:
        async with doors.call(x_forwarded_for="127.0.0.1, 192.0.2.1") as socket:
            assert json.loads(await socket.recv())["type"] == "ready"
            event, code = await doors.first(x_forwarded_for="192.0.2.99, 192.0.2.1")
            assert (event["code"], code) == ("too_many_sessions", 1013)
            assert "the client has 1 sessions open, expected at most 1" in event["message"]
            assert (await doors.first(x_forwarded_for="192.0.2.2"))[0]["type"] == "ready"
        assert (await doors.first(x_forwarded_for="192.0.2.1"))[0]["type"] == "ready"
