"""A bad network on loopback: a UDP relay between two peers that loses, delays, overtakes and repeats their media.

The peers are real, and so are their ICE, DTLS and SRTP. They know only the relay: with candidates of each other they
would soon find the shorter way past it.
"""

import asyncio
import contextlib
import random
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

HOST = "127.0.0.1"
RTP = range(128, 192)  # the first byte, RTCP's too; STUN and DTLS are below. RFC 7983, section 7
RTCP = range(192, 224)  # the second byte, RFC 5761, section 4
_CANDIDATE = re.compile(r"^(a=candidate:\S+ 1 udp \d+) (\S+) (\d+) .*$", re.MULTILINE | re.IGNORECASE)
_CANDIDATES = re.compile(r"^a=(?:candidate:|end-of-candidates).*\r?\n", re.MULTILINE)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Network:
    """What becomes of RTP and RTCP. loss, repeated: shares of the packets.

    jitter_s: a packet takes between nothing and so long, so that some overtake others.
    """

    loss: float = 0.0
    jitter_s: float = 0.0
    repeated: float = 0.0


@dataclass(slots=True)
class Relay:
    """Begins as a good network; `network` may be set at any time. Of two runs with one seed the same packets are lost.

    lost, passed: RTP packets of the caller.
    """

    seed: int
    network: Network = field(default_factory=Network)
    lost: int = 0
    passed: int = 0
    _front: "_Side" = field(init=False)  # the caller's
    _back: "_Side" = field(init=False)
    _dice: dict[tuple[bool, bool], random.Random] = field(init=False)
    _is_out: bool = False
    _stalled: "list[tuple[_Side, bytes]] | None" = None

    def __post_init__(self) -> None:
        self._front, self._back = _Side(self), _Side(self)
        # RTCP comes when it likes, and must not change what RTP meets.
        self._dice = defaultdict(lambda: random.Random(self.seed))

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._front.transport, _ = await loop.create_datagram_endpoint(lambda: self._front, (HOST, 0))
        self._back.transport, _ = await loop.create_datagram_endpoint(lambda: self._back, (HOST, 0))

    def close(self) -> None:
        self._front.transport.close()
        self._back.transport.close()

    def led_through(self, answer: str) -> str:
        """The server's answer with the relay's address in place of its own."""
        found = _CANDIDATE.search(answer)
        if found is None:
            raise ValueError("the answer has no UDP candidate, expected one at least")
        self._back.peer = (found[2], int(found[3]))
        host, port = self._front.transport.get_extra_info("sockname")
        relay = f"{found[1]} {host} {port} typ host\r\n"
        return _CANDIDATES.sub("", answer).replace("a=ice-ufrag:", f"a={relay[2:]}a=ice-ufrag:")

    def drop_all(self, seconds: float) -> None:
        """From now on nothing passes, whatever it is."""
        self._is_out = True
        asyncio.get_running_loop().call_later(seconds, self._end_outage)

    def stall(self, seconds: float) -> None:
        """From now on everything waits, and then comes at once."""
        self._stalled = []
        asyncio.get_running_loop().call_later(seconds, self._end_stall)

    def take(self, side: "_Side", packet: bytes) -> None:
        is_up = side is self._front
        to = self._back if is_up else self._front
        is_media, is_rtcp = packet[0] in RTP, packet[1] in RTCP
        ways = self._ways(self._dice[is_up, is_rtcp]) if is_media else [0.0]
        if self._is_out:
            ways = []
        if is_up and is_media and not is_rtcp:
            self.passed += bool(ways)
            self.lost += not ways
        for delay_s in ways:
            if delay_s > 0.0:
                asyncio.get_running_loop().call_later(delay_s, self._send, to, packet)
            else:
                self._send(to, packet)

    def _ways(self, dice: random.Random) -> list[float]:
        """A delay for each copy that arrives. As many throws for every packet, so that each has its own fate."""
        is_lost, is_repeated = dice.random() < self.network.loss, dice.random() < self.network.repeated
        delays = [dice.uniform(0.0, self.network.jitter_s), dice.uniform(0.0, self.network.jitter_s)]
        return [] if is_lost else delays[: 1 + is_repeated]

    def _send(self, to: "_Side", packet: bytes) -> None:
        if self._stalled is not None:
            self._stalled.append((to, packet))
        elif to.peer is not None and not to.transport.is_closing():
            to.transport.sendto(packet, to.peer)

    def _end_outage(self) -> None:
        self._is_out = False

    def _end_stall(self) -> None:
        waiting, self._stalled = self._stalled or [], None
        for to, packet in waiting:
            self._send(to, packet)


@contextlib.asynccontextmanager
async def relaying(seed: int) -> AsyncIterator[Relay]:
    relay = Relay(seed)
    await relay.open()
    try:
        yield relay
    finally:
        relay.close()


def without_candidates(description: str) -> str:
    """An offer that does not tell where its sender is: whoever takes it learns that from the packets."""
    return _CANDIDATES.sub("", description)


class _Side(asyncio.DatagramProtocol):
    """One of the relay's two sockets. peer: who is at its other end, the first to send to it."""

    transport: asyncio.DatagramTransport

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.peer: Address | None = None

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.peer = self.peer or addr
        self._relay.take(self, data)
