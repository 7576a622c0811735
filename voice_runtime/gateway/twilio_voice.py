"""The door at which Twilio asks what to do with a call: it is told to open a stream to us.

Source: twilio.com/docs/voice/twiml/stream: parameters come back in the stream's start message, which no query could.
"""

import re
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
# What XML 1.0 cannot hold, however it is escaped.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TwilioVoice:
    """Answers a call's webhook with TwiML."""

    def __init__(self, carriers: CarrierAccess) -> None:
        self._carriers = carriers
        self.routes = [Route(PATH, self._answer, methods=["POST"])]

    async def _answer(self, request: Request) -> Response:
        body = (await read_text(request, FORM_TYPE, MOST_FORM_BYTES, "bad_form")).encode()
        self._carriers.check_webhook("twilio", target_of(request.scope), request.headers, body, request.state.client)
        form = form_of(body)
        parameters = {"from": form.get("From", [""])[0], "to": form.get("To", [""])[0]}
        text = twiml(self._carriers.stream_url("twilio"), parameters)
        return Response(text, headers={"cache-control": "no-store"}, media_type="text/xml")


def twiml(stream_url: str, parameters: Mapping[str, str]) -> str:
    """Connect the call to a stream, both ways. parameters: what comes back with its start; empty ones are left out."""
    response = ElementTree.Element("Response")
    connect = ElementTree.SubElement(response, "Connect")
    stream = ElementTree.SubElement(connect, "Stream", url=_UNWRITABLE.sub("", stream_url))
    for name, value in parameters.items():
        if value:
            ElementTree.SubElement(stream, "Parameter", name=name, value=_UNWRITABLE.sub("", value))
    return '<?xml version="1.0" encoding="UTF-8"?>' + ElementTree.tostring(response, encoding="unicode")
