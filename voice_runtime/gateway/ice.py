"""Which STUN and TURN servers are there: one that is not would delay every connection by its timeout."""

import asyncio
import logging
import time

import aioice
from aiortc import RTCIceServer
from aiortc.rtcicetransport import connection_kwargs

from voice_runtime.pipeline.config import IceServer

logger = logging.getLogger(__name__)
CHECKED_S = 60.0


class IceServers:
    """Asks the servers now and then, in the background; connections are made with those that answered."""

    def __init__(self, servers: tuple[IceServer, ...]) -> None:
        self._servers = [RTCIceServer(server.urls, server.username, server.credential) for server in servers]
        self._live: list[RTCIceServer] = []
        self._checked_s = float("-inf")
        self._check: asyncio.Task[None] | None = None

    def live(self) -> list[RTCIceServer]:
        """Those that answered a moment ago; the first connection after a while goes without."""
        if time.monotonic() - self._checked_s > 2 * CHECKED_S:
            self._live = []
        if self._servers and self._check is None and time.monotonic() - self._checked_s > CHECKED_S:
            self._check = asyncio.create_task(self._ask_all(), name="ask ice servers")
        return self._live

    @property
    def is_asking(self) -> bool:
        return self._check is not None

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)

    async def _ask_all(self) -> None:
        try:
            answered = await asyncio.gather(*(_answers(server) for server in self._servers))
        finally:
            self._check, self._checked_s = None, time.monotonic()
        self._live = [server for server, is_live in zip(self._servers, answered, strict=True) if is_live]


async def _answers(server: RTCIceServer) -> bool:
    """Whether the server gives us an address."""
    connection = aioice.Connection(ice_controlling=False, **connection_kwargs([server]))
    try:
        await connection.gather_candidates()
        is_live = any(candidate.type in ("srflx", "relay") for candidate in connection.local_candidates)
    except (OSError, ConnectionError) as error:
        logger.info("%s: %s", server.urls, error)
        is_live = False
    finally:
        await connection.close()
    if not is_live:
        logger.warning("%s does not answer: connections are made without it", server.urls)
    return is_live
