"""The gateway's doors: health, resources, metrics, tokens, /v1/pcm and the page. Nothing in here computes for long."""

import asyncio
import logging
from pathlib import Path

import prometheus_client
import psutil
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from voice_runtime.errors import PeerError
from voice_runtime.gateway import tokens
from voice_runtime.gateway.auth import TOKENS, Access
from voice_runtime.gateway.bodies import read_bytes
from voice_runtime.gateway.carriers import CarrierAccess
from voice_runtime.gateway.guard import Guard, refusal
from voice_runtime.gateway.metrics import Metrics
from voice_runtime.gateway.phone import Phone
from voice_runtime.gateway.protocols import json_events, raw_pcm
from voice_runtime.gateway.sessions import Admitted, Sessions
from voice_runtime.gateway.transports import websocket
from voice_runtime.gateway.twilio_voice import TwilioVoice
from voice_runtime.gateway.whip import Whip
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline.config import PipelineConfig, TelephonySettings
from voice_runtime.pipeline.runtime import Pipeline

logger = logging.getLogger(__name__)
TRY_LATER = ("not_ready", "too_many_sessions", "too_many_attempts")


class Gateway:
    """The HTTP and WebSocket side of a pipeline.

    web: folder of the page. carriers: who may call by telephone; nobody when it is left out.
    """

    def __init__(
        self,
        config: PipelineConfig,
        pipeline: Pipeline,
        vad: SileroVad,
        access: Access,
        web: Path,
        carriers: CarrierAccess | None = None,
    ) -> None:
        self._config = config
        self._pipeline = pipeline
        self._access = access
        self._metrics = Metrics()
        self._sessions = Sessions(config, pipeline, vad, self._metrics)
        self._whip = Whip(config, self._sessions, access.host, self._metrics.late_frames.inc)
        carriers = carriers or CarrierAccess(TelephonySettings(), access.host)
        twilio_voice = TwilioVoice(carriers)
        transfers = {"twilio": twilio_voice.transfer}
        self.phone = Phone(config, self._sessions, carriers, self._refused, transfers)
        routes = [
            Route("/health", self._health),
            Route("/debug/resources", self._resources),
            Route("/metrics", self._show_metrics),
            Route(TOKENS, self._mint, methods=["POST"]),
            WebSocketRoute("/v1/pcm", self._pcm),
            *self._whip.routes,
            *twilio_voice.routes,
            *self.phone.routes,
            Mount("/", StaticFiles(directory=web, html=True)),
        ]
        attempts = config.limits.attempts_per_minute
        inner = Starlette(routes=routes, exception_handlers={PeerError: self._refuse})
        self.app: ASGIApp = Guard(inner, access, attempts, self._refused, self._turn_away, carriers)

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

    async def _mint(self, request: Request) -> Response:
        ttl_s = tokens.requested_ttl_s(await read_bytes(request, tokens.MOST_REQUEST_BYTES))
        token = self._access.mint(ttl_s)
        return JSONResponse({"token": token, "expires_in_s": ttl_s}, headers={"cache-control": "no-store"})

    async def _pcm(self, socket: WebSocket) -> None:
        query, limits = socket.query_params, self._config.limits
        try:
            input_hz = raw_pcm.rate(query.get("input_rate"), "input_rate", 16_000)
            output_hz = raw_pcm.rate(query.get("output_rate"), "output_rate", 24_000)
            with self._sessions.open(input_hz, output_hz, query.get("resume"), client=socket.state.client) as admitted:
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
        await socket.close(1013 if error.code in TRY_LATER else 1008, error.code)

    async def _refuse(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, PeerError)
        self._refused(error)
        return refusal(error)

    def _refused(self, error: PeerError) -> None:
        self._metrics.refused.labels(error.code).inc()
        logger.info("refused: %s", error.code)


def _ready(admitted: Admitted, input_hz: int, output_hz: int) -> str:
    return json_events.ready(admitted.id, input_hz, output_hz, admitted.resume, recorded=admitted.is_recorded)
