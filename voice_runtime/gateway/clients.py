"""Who a client is when clients are counted, and how often one may try. Sans-IO."""

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable

from voice_runtime.errors import ConfigError, PeerError

MOST_CLIENTS = 1_024  # remembered at a time: with 30 attempts each, about a megabyte
WINDOW_S = 60.0
# Whoever is on this machine may do worse than call too often, and its tools and tests do call often. A proxy that we
# were not told of is on this machine too: limits on it would shut out all its clients as if they were one.
THIS_MACHINE = "this machine"


def client_name(address: str, *, behind_proxy: bool) -> str:
    """The name under which a client is counted: its address, or the network that it can choose addresses from.

    address: as the socket or a trusted proxy tells it. behind_proxy: a proxy is trusted; then loopback is nobody
        special, since a request that came through the proxy may say that it came from there.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None and not ip.is_loopback:
            return str(ipaddress.ip_network((int(ip), 64), strict=False))  # RFC 6177: a site has at least so much
        ip = ip.ipv4_mapped or ip
    return THIS_MACHINE if ip.is_loopback and not behind_proxy else str(ip)


def trusted_proxies(listed: str) -> tuple[str, ...]:
    """Addresses and networks out of a list with commas.

    Raises:
        ConfigError: one of them is neither; "*" too, since whoever may name his own address has no limits.
    """
    proxies = tuple(part.strip() for part in listed.split(",")) if listed else ()
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            expected = "addresses or networks of proxies, such as 127.0.0.1,10.0.0.0/8"
            raise ConfigError(f"forwarded-allow-ips has {proxy!r}: {error}, expected {expected}") from None
    return proxies


class Attempts:
    """What each client has tried in the last minute. clock: seconds. most: in any minute, of one client.

    Memory is bounded: of more than `MOST_CLIENTS` the one that was quiet for longest is forgotten.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()  # the client that tried last comes last

    def __len__(self) -> int:
        return len(self._times)

    def check(self, client: str) -> None:
        """Raises PeerError: too_many_attempts."""
        self._forget_old(client)
        count = len(self._times.get(client, ()))
        if count >= self._most:
            raise PeerError(
                "too_many_attempts", f"{count} attempts came within a minute, expected at most {self._most}"
            )

    def add(self, client: str) -> None:
        """Count one; this machine's own are not counted."""
        if client == THIS_MACHINE:
            return
        self._forget_old(client)
        self._times.setdefault(client, deque(maxlen=self._most)).append(self._clock())
        self._times.move_to_end(client)
        while len(self._times) > MOST_CLIENTS:
            self._times.popitem(last=False)

    def _forget_old(self, client: str) -> None:
        """Attempts of this client, and all clients, of more than a minute ago."""
        old_s = self._clock() - WINDOW_S
        while self._times and next(iter(self._times.values()))[-1] <= old_s:
            self._times.popitem(last=False)
        times = self._times.get(client) or deque()
        while times and times[0] <= old_s:
            times.popleft()
