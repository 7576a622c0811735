"""The door at which Twilio asks what to do with a call: it is told to open a stream to us.

Source: twilio.com/docs/voice/twiml/stream: parameters come back in the stream's start message, which no query could.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from xml.etree import ElementTree

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voice_runtime.gateway.bodies import read_text
from voice_runtime.gateway.carriers import CarrierAccess, target_of
from voice_runtime.gateway.signatures import form_of

PATH = "/telephony/twilio/voice"
FORM_TYPE = "application/x-www-form-urlencoded"
MOST_FORM_BYTES = 16_384
AFTER = "/telephony/twilio/after"
MOST_TARGETS = 1_000
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
# What XML 1.0 cannot hold, however it is escaped.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TwilioVoice:
    """Answers a call's webhooks with TwiML: to a stream of ours when it comes, and where else when that is over."""

    def __init__(self, carriers: CarrierAccess) -> None:
        self._carriers = carriers
        self._targets: OrderedDict[str, str] = OrderedDict()  # of calls to be given away, by their CallSid
        self.routes = [Route(PATH, self._answer, methods=["POST"]), Route(AFTER, self._after, methods=["POST"])]

    def transfer(self, call_sid: str, target: str) -> None:
        """Give a call away once its stream is over. target: a number or a SIP address."""
        self._targets[call_sid] = target
        while len(self._targets) > MOST_TARGETS:
            self._targets.popitem(last=False)

    async def _answer(self, request: Request) -> Response:
        form = await self._form(request)
        parameters = {"from": form.get("From", [""])[0], "to": form.get("To", [""])[0]}
        return _xml(twiml(self._carriers.stream_url("twilio"), parameters, self._carriers.url(AFTER)))

    async def _after(self, request: Request) -> Response:
        """The stream is over."""
        form = await self._form(request)
        return _xml(next_twiml(self._targets.pop(form.get("CallSid", [""])[0], None)))

    async def _form(self, request: Request) -> dict[str, list[str]]:
        body = (await read_text(request, FORM_TYPE, MOST_FORM_BYTES, "bad_form")).encode()
        self._carriers.check_webhook("twilio", target_of(request.scope), request.headers, body, request.state.client)
        return form_of(body)


def _xml(text: str) -> Response:
    return Response(text, headers={"cache-control": "no-store"}, media_type="text/xml")


def next_twiml(target: str | None) -> str:
    """Call somebody else, or hang up."""
    response = ElementTree.Element("Response")
    if target is None:
        ElementTree.SubElement(response, "Hangup")
    elif target.startswith("sip"):
        ElementTree.SubElement(ElementTree.SubElement(response, "Dial"), "Sip").text = target
    else:
        ElementTree.SubElement(response, "Dial").text = target
    return DECLARATION + ElementTree.tostring(response, encoding="unicode")


def twiml(stream_url: str, parameters: Mapping[str, str], after_url: str) -> str:
    """Connect the call to a stream, both ways. parameters: what comes back with its start; empty ones are left out.

    after_url: asked what is next when the stream is over.
    """
    response = ElementTree.Element("Response")
    connect = ElementTree.SubElement(response, "Connect", action=_UNWRITABLE.sub("", after_url))
    stream = ElementTree.SubElement(connect, "Stream", url=_UNWRITABLE.sub("", stream_url))
    for name, value in parameters.items():
        if value:
            ElementTree.SubElement(stream, "Parameter", name=name, value=_UNWRITABLE.sub("", value))
    return DECLARATION + ElementTree.tostring(response, encoding="unicode")
