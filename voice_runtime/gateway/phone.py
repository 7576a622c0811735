"""The telephony doors: carriers' WebSockets, the TCP port of AudioSocket, and the agent's side of calls that go on."""

import asyncio
import contextlib
import itertools
import logging
import re
import string
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_runtime.errors import PeerError
from voice_runtime.gateway.auth import TELEPHONY
from voice_runtime.gateway.bodies import read_text
from voice_runtime.gateway.carriers import CarrierAccess
from voice_runtime.gateway.clients import client_name
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.audiosocket import AudioSocketCodec
from voice_runtime.gateway.protocols.telephony.registry import CODECS, detect
from voice_runtime.gateway.sessions import Sessions
from voice_runtime.gateway.transports.common import HungUp
from voice_runtime.gateway.transports.telephony import Limits, Link, PhoneCall, lead_ms
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.session.events import Configure
from voice_runtime.session.settings import MOST_INSTRUCTION_BYTES

logger = logging.getLogger(__name__)
CALLS = "/v1/calls"
AUTO = "auto"  # in place of a carrier's name: whose call it is, its first message tells
START_S = 10.0  # from the connection to the message that starts the call
MOST_BEFORE_START = 100  # messages
MOST_ORDER_BYTES = 1_024
TCP_BYTES = 65_536
_TARGET = re.compile(r"\+?[0-9*#]{1,20}|sips?:[^\s<>\"]{1,200}", re.ASCII)
MOST_UNBEGUN = 16  # connections of AudioSocket


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
        transfers: Mapping[str, Callable[[str, str], None]],
    ) -> None:
        """transfers: by carrier, what is to be told before a call ends: the carrier's id of it, and to whom it goes."""
        self._carriers = carriers
        self._transfers = transfers
        self._settings = config.telephony
        self._limits = Limits(config.limits.send_s, config.limits.session_s)
        self._sessions = sessions
        self._refused = refused
        self._calls: dict[str, PhoneCall] = {}
        self._lines: set[asyncio.Task[None]] = set()  # of AudioSocket
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
            try:
                yield server.sockets[0].getsockname()[1]
            finally:
                for task in self._lines:
                    task.cancel()
                await asyncio.gather(*self._lines, return_exceptions=True)

    # The carriers' side

    async def _socket(self, socket: WebSocket) -> None:
        await socket.accept()
        link = _WebSocketLink(socket)
        reason = await self._take(link, socket.path_params["carrier"], socket.state.client)
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(1000, reason)

    async def _tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        try:
            if len(self._lines) > self._settings.calls + MOST_UNBEGUN:
                self._refused(PeerError("too_many_calls", "connections that have begun no call fill the port"))
                return
            client = client_name(writer.get_extra_info("peername")[0], behind_proxy=False)
            await self._take(_TcpLink(reader, writer), AudioSocketCodec.name, client)
        finally:
            self._lines.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _take(self, link: Link, carrier: str, client: str) -> str:
        """A call from its first message to its end; why it ended. client: who has connected."""
        try:
            codec, events = await self._begin(link, carrier)
            started = next(event for event in events if isinstance(event, base.Started))
            self._check(codec, started, client)
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
        call_id = f"call-{next(self._numbers)}"
        rate_hz = started.audio.rate_hz
        # A carrier has few addresses for all its callers: each call is a client of its own, and `calls` is the limit.
        client = f"{codec.name} {call_id}"
        with self._sessions.open(rate_hz, rate_hz, client=client, lead_ms=lead_ms(codec)) as admitted:
            admitted.is_kept = False  # a caller has no token to come back with
            if self._settings.instructions:
                instructions = _filled_in(self._settings.instructions, codec.name, started)
                admitted.session.receive(Configure({"instructions": instructions}))
            call = PhoneCall(link, codec, started, admitted.session)
            self._calls[call_id] = call
            try:
                return await call.serve(self._limits, events)
            finally:
                del self._calls[call_id]

    def _check(self, codec: base.CarrierCodec, started: base.Started, client: str) -> None:
        if len(self._calls) >= self._settings.calls:
            raise PeerError("too_many_calls", f"{len(self._calls)} calls are open, the limit")
        if isinstance(codec, AudioSocketCodec):
            self._carriers.check_uuid(started.call_id, client)

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
        if order.transfer is not None:
            self._transfer(call, order.transfer)
        call.hang_up()
        return Response(status_code=204)

    def _transfer(self, call: PhoneCall, target: str) -> None:
        """The call is given away by how it ends. Raises PeerError: bad_order, no_such_ability."""
        if not _TARGET.fullmatch(target):
            raise PeerError("bad_order", "transfer is neither a number nor a SIP address, expected +15550100 or sip:…")
        hook = self._transfers.get(call.codec.name)
        if hook is None:
            can = ", ".join(self._transfers)
            raise PeerError("no_such_ability", f"{call.codec.name} takes no transfer, expected a call of {can}")
        hook(call.started.call_id, target)


def _codec(carrier: str, message: base.Wire) -> base.CarrierCodec:
    """Raises PeerError: no_such_carrier."""
    codec = detect(message) if carrier == AUTO else CODECS.get(carrier)
    if codec is None:
        expected = "a first message of one that is known" if carrier == AUTO else ", ".join([*CODECS, AUTO])
        raise PeerError("no_such_carrier", f"carrier is {carrier[:40]!r}, expected {expected}")
    return codec()


def _filled_in(instructions: str, carrier: str, started: base.Started) -> str:
    """$name stands for a parameter of the call; one that it does not have stays. As much as a session takes."""
    known = {**started.parameters, "carrier": carrier, "call_id": started.call_id}
    text = string.Template(instructions).safe_substitute(known)
    return text.encode()[:MOST_INSTRUCTION_BYTES].decode(errors="ignore")


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
