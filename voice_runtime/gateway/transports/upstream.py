"""What of aiortc and aioice is used beyond their public interface, all of it: three names. See tests/architecture.

Source: aiortc 1.16.0 (rtcrtpreceiver.py, rtcrtpsender.py), aioice 0.13.0 (ice.py). A name that is gone raises when it
is first needed, by its name.
"""

import ipaddress
import logging
import socket
from collections.abc import Callable

import aioice.ice
from aiortc import RTCRtpReceiver, RTCRtpSender
from aiortc.rtp import RtpPacket

from voice_runtime.errors import UnsupportedError

logger = logging.getLogger(__name__)
JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"
RTP_TIMESTAMP = "_RTCRtpSender__rtp_timestamp"
HOST_ADDRESSES = "get_host_addresses"

_all_host_addresses = getattr(aioice.ice, HOST_ADDRESSES)


def listen_on(host: str) -> None:
    """Have media bind to the address that the server listens on; to every one but loopback when it listens on all.

    aioice binds to each address of the machine and has no setting for it: a server for loopback would be open to all.
    """
    _expect(aioice.ice, HOST_ADDRESSES)
    address = "127.0.0.1" if host == "localhost" else socket.gethostbyname(host) if _is_name(host) else host

    def addresses(use_ipv4: bool, use_ipv6: bool) -> list[str]:
        if ipaddress.ip_address(address).is_unspecified:
            return list(_all_host_addresses(use_ipv4, use_ipv6))
        return [address]

    setattr(aioice.ice, HOST_ADDRESSES, addresses)


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def tap(receiver: RTCRtpReceiver, take: Callable[[RtpPacket], None]) -> None:
    """Have every packet of a receiver in place of its jitter buffer, which stalls at a loss, and of its decoder.

    An exception of `take` is logged: within aiortc it would end the connection.
    """
    _expect(receiver, JITTER_BUFFER)
    setattr(receiver, JITTER_BUFFER, _Tap(take))


def rtp_timestamp(sender: RTCRtpSender) -> int:
    """Of the packet sent last, 32 bits; its origin is random, and told nowhere else before the first report."""
    _expect(sender, RTP_TIMESTAMP)
    timestamp: int = getattr(sender, RTP_TIMESTAMP)
    return timestamp


class _Tap:
    def __init__(self, take: Callable[[RtpPacket], None]) -> None:
        self._take = take

    def add(self, packet: RtpPacket) -> tuple[bool, None]:
        """As JitterBuffer.add: no picture is to be asked for, no frame is whole."""
        try:
            self._take(packet)
        except Exception:
            logger.exception("a packet could not be taken")
        return False, None


def _expect(holder: object, name: str) -> None:
    if not hasattr(holder, name):
        raise UnsupportedError(f"{holder!r} has no {name}, expected aiortc 1.16 and aioice 0.13")
