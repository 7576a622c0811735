"""The gateway's doors: health, resources, metrics, /v1/pcm and the page. Nothing in here computes for long."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import prometheus_client
import psutil
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from voice_runtime.errors import PeerError
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.metrics import Metrics
from voice_runtime.gateway.protocols import json_events, raw_pcm
from voice_runtime.gateway.sessions import Admitted, Sessions
from voice_runtime.gateway.transports import websocket
from voice_runtime.gateway.whip import Whip
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.pipeline.runtime import Pipeline

logger = logging.getLogger(__name__)
# The page loads nothing from elsewhere; worklets and sockets are our own.
CONTENT_POLICY = "default-src 'self'; connect-src 'self'; frame-ancestors 'none'"
HTTP_STATUS = {
    "bad_host": 403, "bad_origin": 403, "bad_token": 401, "no_such_peer": 404, "ice_restart": 409,
    "not_ready": 503, "too_many_sessions": 503,
}  # fmt: skip


class Gateway:
    """The HTTP and WebSocket side of a pipeline.

    web: folder of the page.
    """

    def __init__(self, config: PipelineConfig, pipeline: Pipeline, vad: SileroVad, access: Access, web: Path) -> None:
        self._config = config
        self._pipeline = pipeline
        self._access = access
        self._metrics = Metrics()
        self._sessions = Sessions(config, pipeline, vad, self._metrics)
        self._whip = Whip(config, self._sessions, access.host, self._metrics.late_frames.inc)
        routes = [
            Route("/health", self._health),
            Route("/debug/resources", self._resources),
            Route("/metrics", self._show_metrics),
            WebSocketRoute("/v1/pcm", self._pcm),
            *self._whip.routes,
            Mount("/", StaticFiles(directory=web, html=True)),
        ]
        self.app: ASGIApp = _Guard(
            Starlette(routes=routes, exception_handlers={PeerError: self._refuse}), access, self._refused
        )

    async def close(self) -> None:
        """End the connections that no request holds."""
        await self._whip.close()

    async def _health(self, request: Request) -> Response:
        stages = self._pipeline.health()
        ready = all(state == "ready" for state in stages.values())
        body = {"status": "ready" if ready else "starting", "pipeline": self._config.name, "stages": stages}
        return JSONResponse(body, 200 if ready else 503)

    async def _resources(self, request: Request) -> Response:
        process = psutil.Process()
        resources = await self._pipeline.resources()
        gateway = {
            "sessions": len(self._sessions),
            "tasks": len(asyncio.all_tasks()),
            "handles": process.num_fds(),
            "rss_bytes": process.memory_info().rss,
            "nice": process.nice(),
        }
        return JSONResponse({"gateway": gateway, **resources})

    async def _show_metrics(self, request: Request) -> Response:
        text = prometheus_client.generate_latest(self._metrics.registry)
        return PlainTextResponse(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def _pcm(self, socket: WebSocket) -> None:
        query, limits = socket.query_params, self._config.limits
        try:
            input_hz = raw_pcm.rate(query.get("input_rate"), "input_rate", 16_000)
            output_hz = raw_pcm.rate(query.get("output_rate"), "output_rate", 24_000)
            with self._sessions.open(input_hz, output_hz, query.get("resume")) as admitted:
                await socket.accept()
                await socket.send_text(_ready(admitted, input_hz, output_hz))
                await websocket.serve(socket, admitted.session, input_hz, limits.send_s, limits.session_s)
        except PeerError as error:
            await self._turn_away(socket, error)

    async def _turn_away(self, socket: WebSocket, error: PeerError) -> None:
        """Tell a client of the socket why, in an event and in the close code (1013: try again later)."""
        self._refused(error)
        await socket.accept()
        await socket.send_json({"type": "error", "code": error.code, "message": str(error)})
        await socket.close(1013 if error.code in ("not_ready", "too_many_sessions") else 1008, error.code)

    async def _refuse(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, PeerError)
        self._refused(error)
        return _error(error)

    def _refused(self, error: PeerError) -> None:
        self._metrics.refused.labels(error.code).inc()
        logger.info("refused: %s", error.code)


def _error(error: PeerError) -> JSONResponse:
    body = {"type": "error", "code": error.code, "message": str(error)}
    return JSONResponse(body, HTTP_STATUS.get(error.code, 400))


def _ready(admitted: Admitted, input_hz: int, output_hz: int) -> str:
    return json_events.ready(admitted.id, input_hz, output_hz, admitted.resume, recorded=admitted.is_recorded)


class _Guard:
    """ASGI middleware: nobody reaches a door whom `Access` refuses. A refused handshake gets an HTTP status."""

    def __init__(self, app: ASGIApp, access: Access, refused: Callable[[PeerError], None]) -> None:
        self._app = app
        self._access = access
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        send = _with_policy(send)
        try:
            self._access.check(scope["path"], Headers(scope=scope), QueryParams(scope["query_string"]))
        except PeerError as error:
            self._refused(error)
            response = _error(error)
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(response)
            else:
                await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _with_policy(send: Send) -> Send:
    async def send_with_policy(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = CONTENT_POLICY
            headers["x-content-type-options"] = "nosniff"
            headers["referrer-policy"] = "no-referrer"
        await send(message)

    return send_with_policy
