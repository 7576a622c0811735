"""Every protocol's carrier side by its name. A new one is its file and a line here."""

from voice_runtime.carrier.asterisk import AsteriskJsonSide, AsteriskSide
from voice_runtime.carrier.audiosocket import AudioSocketSide
from voice_runtime.carrier.base import Side
from voice_runtime.carrier.exotel import ExotelSide
from voice_runtime.carrier.jambonz import FreeSwitchSide, JambonzSide
from voice_runtime.carrier.plivo import PlivoSide
from voice_runtime.carrier.telnyx import TelnyxSide
from voice_runtime.carrier.twilio import TwilioSide
from voice_runtime.carrier.vonage import VonageSide

_ALL: tuple[type[Side], ...] = (
    TwilioSide,
    TelnyxSide,
    PlivoSide,
    VonageSide,
    ExotelSide,
    AsteriskSide,
    AsteriskJsonSide,
    AudioSocketSide,
    JambonzSide,
    FreeSwitchSide,
)
SIDES: dict[str, type[Side]] = {side.name: side for side in _ALL}
