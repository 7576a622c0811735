"""The doors of carriers over real sockets: nobody gets in who has not proved to be one."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlencode
from xml.etree import ElementTree

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from twilio.request_validator import RequestValidator
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.gateway.telephony.test_carriers import ALL, SECRET, TOKEN, URL, access, twilio
from tests.support.gateway import opened
from voice_runtime.errors import PeerError
from voice_runtime.gateway.app import Gateway
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.guard import Guard
from voice_runtime.gateway.server import Server, listen
from voice_runtime.gateway.twilio_voice import TwilioVoice, next_twiml, twiml
from voice_runtime.pipeline.config import TelephonySettings

CALL = {"CallSid": "CA1", "From": "+15550100", "To": "+15550199", "CallerName": 'A & "B" <c>'}
FORM = {"content_type": "application/x-www-form-urlencoded"}
VOICE = "/telephony/twilio/voice"


@dataclass
class Phone:
    """A door that lets every call in that has come through to it. let_in: their carriers. refused: codes."""

    port: int = 0
    let_in: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def door(self, socket: WebSocket) -> None:
        self.let_in.append(socket.path_params["carrier"])
        await socket.accept()
        await socket.close()

    async def status(self, path: str, host: str = "localhost", **headers: str) -> int:
        """Of a handshake: 101 when the call was let in. host: what we are called by."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        try:
            async with self._connect(f"ws://{host}:{self.port}{path}", named) as socket:
                await socket.wait_closed()
        except InvalidStatus as error:
            return error.response.status_code
        return 101

    def _connect(self, url: str, headers: dict[str, str]) -> connect:
        return connect(url, additional_headers=headers, host="localhost", port=self.port)


async def never(socket: WebSocket, error: PeerError) -> None:
    raise AssertionError("a carrier's socket is refused before it is one")


@contextlib.asynccontextmanager
async def phone(proxied: bool = False) -> AsyncIterator[Phone]:
    phone = Phone()
    paths = ("/telephony/{carrier}", "/telephony/{carrier}/{token}")
    inner = Starlette(routes=[WebSocketRoute(path, phone.door) for path in paths])
    api = Access("127.0.0.1", "the-api-key", behind_proxy=proxied)
    guard = Guard(inner, api, 30, lambda error: phone.refused.append(error.code), never, access())
    server = Server(cast(Gateway, SimpleNamespace(app=guard)), None, ["127.0.0.1"] if proxied else [])
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        phone.port = listener.getsockname()[1]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            try:
                yield phone
            finally:
                server.should_exit = True


async def test_a_wrong_or_missing_signature_is_refused_with_403_before_the_door() -> None:
    async with phone() as line:
        for headers in ({}, {"x_twilio_signature": twilio("another")}, {"authorization": "Bearer the-api-key"}):
            assert await line.status("/telephony/twilio", **headers) == 403
        assert await line.status("/telephony/twilio/x", x_twilio_signature=twilio()) == 403
        assert await line.status("/telephony/twilio?x=1", x_twilio_signature=twilio()) == 403
        assert line.let_in == []
        assert set(line.refused) == {"bad_signature"}
        assert await line.status("/telephony/twilio", x_twilio_signature=twilio()) == 101
        assert line.let_in == ["twilio"]


async def test_a_token_lets_in_and_the_api_key_does_not() -> None:
    async with phone() as line:
        assert await line.status("/telephony/exotel/the-api-key") == 401
        assert await line.status("/telephony/exotel", authorization="Bearer the-api-key") == 401
        assert await line.status("/telephony/exotel?token=the-api-key") == 401
        assert await line.status("/telephony/jambonz/" + TOKEN) == 404
        assert await line.status(f"/telephony/exotel/{TOKEN}/x") == 404
        assert line.let_in == []
        assert await line.status(f"/telephony/exotel/{TOKEN}") == 101
        assert await line.status("/telephony/vonage", authorization=f"Bearer {TOKEN}") == 101
        assert line.let_in == ["exotel", "vonage"]


async def test_a_right_signature_does_not_excuse_a_wrong_host() -> None:
    async with phone() as line:
        assert await line.status("/telephony/twilio", x_twilio_signature=twilio(), host="evil.example") == 403
        assert line.refused == ["bad_host"]


async def test_who_tries_too_often_is_refused_by_status_and_others_are_not() -> None:
    async with phone(proxied=True) as line:
        tried = [await line.status("/telephony/exotel", x_forwarded_for="192.0.2.1") for _ in range(4)]
        assert tried == [401, 401, 401, 429]
        assert await line.status(f"/telephony/exotel/{TOKEN}", x_forwarded_for="192.0.2.1") == 429
        assert await line.status(f"/telephony/exotel/{TOKEN}", x_forwarded_for="192.0.2.2") == 101


def signature(form: dict[str, str], url: str = URL + VOICE) -> str:
    return str(RequestValidator(SECRET).compute_signature(url, form))


async def test_twilios_call_is_answered_with_a_stream_to_us_that_knows_both_numbers() -> None:
    async with opened(Access("127.0.0.1", "the-api-key"), carriers=access()) as doors:
        body = urlencode(CALL).encode()
        answer = await doors.ask("POST", VOICE, body, x_twilio_signature=signature(CALL), **FORM)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/xml; charset=utf-8")
        stream = ElementTree.fromstring(answer.body).find("Connect/Stream")
        assert stream is not None
        assert stream.get("url") == "wss://voice.example.org/telephony/twilio"
        told = {parameter.get("name"): parameter.get("value") for parameter in stream}
        assert told == {"from": "+15550100", "to": "+15550199"}


async def test_a_webhook_that_twilio_has_not_signed_gets_no_answer_and_leaves_no_number_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="voice_runtime")
    async with opened(Access("127.0.0.1"), carriers=access()) as doors:
        body = urlencode({**CALL, "From": "+15550101"}).encode()
        for headers in ({}, {"x_twilio_signature": signature(CALL)}):
            answer = await doors.ask("POST", VOICE, body, **headers, **FORM)
            assert (answer.status, answer.json()["code"]) == (403, "bad_signature")
            assert b"Stream" not in answer.body
    assert "refused: bad_signature" in caplog.text
    assert "15550" not in caplog.text
    assert SECRET not in caplog.text


async def test_a_webhook_is_a_form_of_16_kb_at_most_and_a_post() -> None:
    async with opened(Access("127.0.0.1"), carriers=access()) as doors:
        for size, expected in ((16_000, 200), (17_000, 400)):
            form = {**CALL, "x": "y" * (size - len(urlencode(CALL)))}
            body = urlencode(form).encode()
            answer = await doors.ask("POST", VOICE, body, x_twilio_signature=signature(form), **FORM)
            assert answer.status == expected
        body = urlencode(CALL).encode()
        assert (await doors.ask("POST", VOICE, body, x_twilio_signature=signature(CALL))).json()["code"] == "bad_form"
        for method in ("GET", "PUT"):
            assert (await doors.ask(method, VOICE, x_twilio_signature=signature({}))).status in (404, 405)


async def test_without_telephony_in_the_pipeline_file_nobody_may_call() -> None:
    async with opened(Access("127.0.0.1")) as doors:
        answer = await doors.ask("POST", VOICE, urlencode(CALL).encode(), x_twilio_signature=signature(CALL), **FORM)
        assert (answer.status, answer.json()["code"]) == (404, "no_such_carrier")
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{doors.url}/telephony/twilio")
        assert refused.value.response.status_code == 404


async def test_a_call_that_was_given_away_goes_to_its_target_once_and_any_other_is_hung_up() -> None:
    path = "/telephony/twilio/after"
    voice = TwilioVoice(access())
    voice.transfer("CA1", "+15550177")
    app = Guard(Starlette(routes=voice.routes), Access("127.0.0.1"), 30, lambda error: None, never, access())
    said = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        for sid in ("CA1", "CA1", "CA2"):
            form = {**CALL, "CallSid": sid}
            answer = await http.post(path, data=form, headers={"X-Twilio-Signature": signature(form, URL + path)})
            said.append(answer.text.partition("?>")[2])
    hung_up = "<Response><Hangup /></Response>"
    assert said == ["<Response><Dial>+15550177</Dial></Response>", hung_up, hung_up]
    assert next_twiml("sip:a@example.org").endswith("<Response><Dial><Sip>sip:a@example.org</Sip></Dial></Response>")


NASTY = [
    '"><Dial>+15550123</Dial>',
    "'&amp;<!--]]>",
    "+1\x00\x1b5550100\ufffe",
    "Zo\u00eb \U0001f600",
    "sip:a@b;c=d?e&f",
]


@pytest.mark.parametrize("value", NASTY)
def test_twiml_says_no_more_than_it_is_told_whatever_is_written_into_it(value: str) -> None:
    response = ElementTree.fromstring(twiml("wss://h/" + value, {"from": value, "to": ""}, value).encode())
    assert [element.tag for element in response.iter()] == ["Response", "Connect", "Stream", "Parameter"]
    writable = value.replace("\x00", "").replace("\x1b", "").replace("\ufffe", "")
    assert response.find("Connect/Stream[@url]") is not None
    assert [element.get("value") for element in response.iter("Parameter")] == [writable]


def test_the_settings_of_the_doors_are_those_of_the_pipeline_file() -> None:
    assert TelephonySettings().carriers() == {}
    assert set(ALL.carriers()) == {"twilio", "plivo", "telnyx", "vonage", "exotel"}
