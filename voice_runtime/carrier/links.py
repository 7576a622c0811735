"""A carrier's connection to the agent: a WebSocket, or TCP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from voice_runtime.carrier.base import Wire

TCP_BYTES = 65_536
OPEN_S = 10.0


class Link(Protocol):
    """Messages both ways; closed once, by either side."""

    def messages(self) -> AsyncIterator[Wire]:
        """What comes, until the connection ends."""

    async def send(self, message: Wire) -> None:
        """Nothing happens when the connection has ended."""

    async def close(self) -> None:
        """In order, as the protocol below wants it."""

    def drop(self) -> None:
        """Without a word."""

    @property
    def reason(self) -> str:
        """Why the agent has closed it, as far as it told."""


@contextlib.asynccontextmanager
async def opened(url: str, headers: Mapping[str, str]) -> AsyncIterator[Link]:
    """url: ws://, wss:// or tcp://.

    Raises:
        OSError, websockets.exceptions.InvalidHandshake: nobody is there, or refuses us.
    """
    parts = urlsplit(url)
    if parts.scheme == "tcp":
        async with asyncio.timeout(OPEN_S):
            link: Link = TcpLink(*await asyncio.open_connection(parts.hostname, parts.port))
        try:
            yield link
        finally:
            await link.close()
        return
    # Carriers keep the messages that wait in their own queues, and compress nothing.
    connection = connect(
        url, additional_headers=headers, compression=None, max_queue=None, max_size=None, open_timeout=OPEN_S
    )
    async with connection as socket:
        yield WebSocketLink(socket)


class WebSocketLink:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def messages(self) -> AsyncIterator[Wire]:
        with contextlib.suppress(ConnectionClosed):
            async for message in self._socket:
                yield message

    async def send(self, message: Wire) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self._socket.send(message)

    async def close(self) -> None:
        await self._socket.close()

    def drop(self) -> None:
        self._socket.transport.abort()

    @property
    def reason(self) -> str:
        return self._socket.close_reason or ""


class TcpLink:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.reason = ""

    async def messages(self) -> AsyncIterator[Wire]:
        with contextlib.suppress(OSError):
            while data := await self._reader.read(TCP_BYTES):
                yield data

    async def send(self, message: Wire) -> None:
        assert isinstance(message, bytes)
        if self._writer.is_closing():
            return
        self._writer.write(message)
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # shielded: who is cancelled here would cancel it for everybody
            await asyncio.shield(self._writer.wait_closed())

    def drop(self) -> None:
        self._writer.transport.abort()
