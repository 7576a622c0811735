"""The WebRTC door: offers, candidates and goodbyes over HTTP, and the peers that came of them.

Source: WHIP (RFC 9725): an offer is posted and answered with 201 and a Location, which takes PATCH and DELETE.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from voice_runtime.errors import PeerError
from voice_runtime.gateway.bodies import read_text
from voice_runtime.gateway.ice import IceServers
from voice_runtime.gateway.protocols import json_events
from voice_runtime.gateway.protocols.sdp import MOST_FRAGMENT_BYTES, MOST_OFFER_BYTES
from voice_runtime.gateway.sessions import Sessions
from voice_runtime.gateway.transports import upstream
from voice_runtime.gateway.transports.rtc import Connection
from voice_runtime.gateway.transports.webrtc import INPUT_HZ, OUTPUT_HZ, Peer
from voice_runtime.pipeline.config import PipelineConfig

logger = logging.getLogger(__name__)
PATH = "/v1/webrtc"
SDP_TYPE = "application/sdp"
FRAGMENT_TYPE = "application/trickle-ice-sdpfrag"


class Whip:
    """host: the address that the server listens on; media bind to it too. on_late: called with each frame sent late."""

    def __init__(
        self, config: PipelineConfig, sessions: Sessions, host: str, on_late: Callable[[], None] = lambda: None
    ) -> None:
        upstream.listen_on(host)
        self._ice = IceServers(config.webrtc.ice_servers)
        self._told = msgspec.to_builtins(config.webrtc.ice_servers)
        self._session_s = config.limits.session_s
        self._sessions = sessions
        self._on_late = on_late
        self._connections: dict[str, Connection] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.routes = [
            Route(f"{PATH}/config", self._config),
            Route(f"{PATH}/offer", self._offer, methods=["POST"]),
            Route(PATH + "/{peer}", self._patch, methods=["PATCH"]),
            Route(PATH + "/{peer}", self._delete, methods=["DELETE"]),
        ]

    async def close(self) -> None:
        """End every peer."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ice.close()

    def end(self, location: str) -> None:
        """Hang up a peer; nothing to one that is gone."""
        task = self._tasks.get(location.removeprefix(f"{PATH}/"))
        if task is not None:
            task.cancel()

    async def settled(self) -> None:
        """Wait until every peer that there is now has ended."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    @property
    def is_asking(self) -> bool:
        """Whether STUN and TURN servers are being asked for a sign of life."""
        return self._ice.is_asking

    async def _config(self, request: Request) -> Response:
        """What the page makes its RTCPeerConnection with."""
        return JSONResponse({"iceServers": self._told})

    async def _offer(self, request: Request) -> Response:
        offer = await read_text(request, SDP_TYPE, MOST_OFFER_BYTES, "bad_offer")
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        peer_id = secrets.token_urlsafe(16)
        resume, client = request.query_params.get("resume"), request.state.client
        serving = self._serve(peer_id, offer, resume, client, answered)
        task = asyncio.create_task(serving, name="serve peer")
        self._tasks[peer_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(peer_id))
        answer = await answered
        return Response(answer, 201, {"location": f"{PATH}/{peer_id}"}, SDP_TYPE)

    async def _patch(self, request: Request) -> Response:
        connection = self._connection(request)
        await connection.add_candidates(await read_text(request, FRAGMENT_TYPE, MOST_FRAGMENT_BYTES, "bad_candidates"))
        return Response(status_code=204)

    async def _delete(self, request: Request) -> Response:
        self._connection(request)
        self.end(request.url.path)
        return Response(status_code=204)

    def _connection(self, request: Request) -> Connection:
        connection = self._connections.get(request.path_params["peer"])
        if connection is None:
            raise PeerError("no_such_peer", "the connection has ended, expected the Location of one that is open")
        return connection

    async def _serve(
        self, peer_id: str, offer: str, resume: str | None, client: str, answered: asyncio.Future[str]
    ) -> None:
        """The peer's whole life. What stops it before it is answered goes into `answered`."""
        try:
            with self._sessions.open(INPUT_HZ, OUTPUT_HZ, resume, client=client) as admitted:
                ready = json_events.ready(
                    admitted.id, INPUT_HZ, OUTPUT_HZ, admitted.resume, recorded=admitted.is_recorded
                )
                admitted.is_told = False
                connection = Connection(INPUT_HZ, OUTPUT_HZ, self._ice.live(), self._on_late)
                try:
                    answered.set_result(await connection.answer(offer))
                    self._connections[peer_id] = connection
                    await Peer(connection, admitted, ready).serve(self._session_s)
                finally:
                    self._connections.pop(peer_id, None)
                    await connection.close()
        except Exception as error:
            if not isinstance(error, PeerError):
                logger.exception("a peer's session failed")
            if not answered.done():
                answered.set_exception(error)
