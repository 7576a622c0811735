"""All carriers that connect by WebSocket, and which one a connection is from. A new one is its file and a line here.

AudioSocket is not among them: it has a TCP port of its own.
"""

from voice_runtime.gateway.protocols.telephony.asterisk import AsteriskCodec
from voice_runtime.gateway.protocols.telephony.base import CarrierCodec, Wire
from voice_runtime.gateway.protocols.telephony.exotel import ExotelCodec
from voice_runtime.gateway.protocols.telephony.jambonz import FreeSwitchCodec, JambonzCodec
from voice_runtime.gateway.protocols.telephony.plivo import PlivoCodec
from voice_runtime.gateway.protocols.telephony.telnyx import TelnyxCodec
from voice_runtime.gateway.protocols.telephony.twilio import TwilioCodec
from voice_runtime.gateway.protocols.telephony.vonage import VonageCodec

_ALL: tuple[type[CarrierCodec], ...] = (
    TwilioCodec,
    TelnyxCodec,
    PlivoCodec,
    VonageCodec,
    ExotelCodec,
    AsteriskCodec,
    JambonzCodec,
    FreeSwitchCodec,
)
CODECS: dict[str, type[CarrierCodec]] = {codec.name: codec for codec in _ALL}


def detect(message: Wire) -> type[CarrierCodec] | None:
    """Whose a call's first message is; None when nobody's."""
    return next((codec for codec in CODECS.values() if codec.begins(message)), None)
