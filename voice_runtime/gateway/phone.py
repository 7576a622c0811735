"""The telephony doors: carriers' WebSockets, the TCP port of AudioSocket, and the agent's side of calls that go on."""

import asyncio
import contextlib
import itertools
import logging
import string
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_runtime.errors import PeerError
from voice_runtime.gateway.auth import TELEPHONY
from voice_runtime.gateway.bodies import read_text
from voice_runtime.gateway.carriers import CarrierAccess
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.audiosocket import AudioSocketCodec
from voice_runtime.gateway.protocols.telephony.registry import CODECS, detect
from voice_runtime.gateway.sessions import Sessions
from voice_runtime.gateway.transports.common import HungUp
from voice_runtime.gateway.transports.telephony import Limits, Link, PhoneCall, lead_ms
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.session.events import Configure

logger = logging.getLogger(__name__)
CALLS = "/v1/calls"
AUTO = "auto"  # in place of a carrier's name: whose call it is, its first message tells
START_S = 10.0  # from the connection to the message that starts the call
MOST_BEFORE_START = 100  # messages
MOST_ORDER_BYTES = 1_024
TCP_BYTES = 65_536


class _Order(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done with a call. transfer: to whom."""

    hangup: bool = False
    transfer: str | None = None


_orders = msgspec.json.Decoder(_Order)


class Phone:
    """Takes calls from those whom `CarrierAccess` has let in."""

    def __init__(
        self,
        config: PipelineConfig,
        sessions: Sessions,
        carriers: CarrierAccess,
        refused: Callable[[PeerError], None],
    ) -> None:
        self._carriers = carriers
        self._settings = config.telephony
        self._limits = Limits(config.limits.send_s, config.limits.session_s)
        self._sessions = sessions
        self._refused = refused
        self._calls: dict[str, PhoneCall] = {}
        self._numbers = itertools.count(1)
        self.routes = [
            WebSocketRoute(TELEPHONY + "{carrier}", self._socket),
            WebSocketRoute(TELEPHONY + "{carrier}/{token}", self._socket),
            Route(CALLS, self._list),
            Route(CALLS + "/{call}", self._order, methods=["POST"]),
        ]

    @contextlib.asynccontextmanager
    async def listening(self, host: str) -> AsyncIterator[int | None]:
        """AudioSocket's TCP port, when there is one, open while the context is entered."""
        settings = self._settings.audiosocket
        if settings is None:
            yield None
            return
        async with await asyncio.start_server(self._tcp, host, settings.port) as server:
            yield server.sockets[0].getsockname()[1]

    # The carriers' side

    async def _socket(self, socket: WebSocket) -> None:
        await socket.accept()
        link = _WebSocketLink(socket)
        reason = await self._take(link, socket.path_params["carrier"])
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(1000, reason)

    async def _tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._take(_TcpLink(reader, writer), AudioSocketCodec.name)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _take(self, link: Link, carrier: str) -> str:
        """A call from its first message to its end; why it ended."""
        try:
            codec, events = await self._begin(link, carrier)
            started = next(event for event in events if isinstance(event, base.Started))
            reason = await self._carry(link, codec, started, events)
        except PeerError as error:
            self._refused(error)
            return error.code
        except HungUp as error:
            return str(error)
        logger.info("a call by %s has ended: %s", carrier, reason)
        return reason

    async def _begin(self, link: Link, carrier: str) -> tuple[base.CarrierCodec, list[base.CarrierEvent]]:
        """The codec, and the events so far, up to those of the message that started the call."""
        codec: base.CarrierCodec | None = AudioSocketCodec() if carrier == AudioSocketCodec.name else None
        events: list[base.CarrierEvent] = []
        try:
            async with asyncio.timeout(START_S):
                for _ in range(MOST_BEFORE_START):
                    message = await link.receive()
                    codec = codec or _codec(carrier, message)
                    events += codec.receive(message)
                    if any(isinstance(event, base.Started) for event in events):
                        return codec, events
        except TimeoutError:
            pass
        raise PeerError("no_call", f"no call has started within {START_S:g} s or {MOST_BEFORE_START} messages")

    async def _carry(
        self, link: Link, codec: base.CarrierCodec, started: base.Started, events: Iterable[base.CarrierEvent]
    ) -> str:
        self._check(codec, started)
        call_id = f"call-{next(self._numbers)}"
        rate_hz = started.audio.rate_hz
        # A carrier has few addresses for all its callers: each call is a client of its own, and `calls` is the limit.
        client = f"{codec.name} {call_id}"
        with self._sessions.open(rate_hz, rate_hz, client=client, lead_ms=lead_ms(codec)) as admitted:
            if self._settings.instructions:
                instructions = _filled_in(self._settings.instructions, codec.name, started)
                admitted.session.receive(Configure({"instructions": instructions}))
            call = PhoneCall(link, codec, started, admitted.session)
            self._calls[call_id] = call
            try:
                return await call.serve(self._limits, events)
            finally:
                del self._calls[call_id]

    def _check(self, codec: base.CarrierCodec, started: base.Started) -> None:
        if len(self._calls) >= self._settings.calls:
            raise PeerError("too_many_calls", f"{len(self._calls)} calls are open, the limit")
        if isinstance(codec, AudioSocketCodec):
            self._carriers.check_uuid(started.call_id)

    # The agent's side

    async def _list(self, request: Request) -> Response:
        calls = [
            {"id": call_id, "carrier": call.codec.name, "call": call.started.call_id}
            for call_id, call in self._calls.items()
        ]
        return JSONResponse({"calls": calls})

    async def _order(self, request: Request) -> Response:
        call = self._calls.get(request.path_params["call"])
        if call is None:
            raise PeerError("no_such_call", f"expected one of {', '.join(self._calls) or 'none'}, which go on now")
        text = await read_text(request, "application/json", MOST_ORDER_BYTES, "bad_order")
        try:
            order = _orders.decode(text)
        except msgspec.DecodeError as error:
            raise PeerError("bad_order", f"{error}; expected hangup or transfer") from None
        if order.hangup == (order.transfer is not None):
            raise PeerError("bad_order", "found both or neither, expected hangup or transfer")
        call.command(base.HangUp() if order.transfer is None else base.Transfer(order.transfer))
        return Response(status_code=204)


def _codec(carrier: str, message: base.Wire) -> base.CarrierCodec:
    """Raises PeerError: no_such_carrier."""
    codec = detect(message) if carrier == AUTO else CODECS.get(carrier)
    if codec is None:
        expected = "a first message of one that is known" if carrier == AUTO else ", ".join([*CODECS, AUTO])
        raise PeerError("no_such_carrier", f"carrier is {carrier[:40]!r}, expected {expected}")
    return codec()


def _filled_in(instructions: str, carrier: str, started: base.Started) -> str:
    """$name stands for a parameter of the call; what it does not have stays as it is."""
    known = {"carrier": carrier, "call_id": started.call_id, **started.parameters}
    return string.Template(instructions).safe_substitute(known)[:2_000]


class _WebSocketLink:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> base.Wire:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise HungUp("hung_up")
        data: bytes | None = message.get("bytes")
        return data if data is not None else str(message.get("text") or "")

    async def send(self, message: base.Wire) -> None:
        try:
            await (self._socket.send_text(message) if isinstance(message, str) else self._socket.send_bytes(message))
        except (RuntimeError, WebSocketDisconnect) as error:
            raise HungUp("hung_up") from error


class _TcpLink:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> base.Wire:
        try:
            data = await self._reader.read(TCP_BYTES)
        except OSError as error:
            raise HungUp("hung_up") from error
        if not data:
            raise HungUp("hung_up")
        return data

    async def send(self, message: base.Wire) -> None:
        assert isinstance(message, bytes)
        self._writer.write(message)
        try:
            await self._writer.drain()
        except OSError as error:
            raise HungUp("hung_up") from error
