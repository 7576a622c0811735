"""Stands before all doors: who may not come in, and what other pages may see. ASGI middleware."""

import time
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from voice_runtime.errors import PeerError
from voice_runtime.gateway.auth import API, TELEPHONY, Access, is_session_door
from voice_runtime.gateway.carriers import CarrierAccess, carrier_and_token, target_of
from voice_runtime.gateway.clients import Attempts, client_name
from voice_runtime.pipeline.config import TelephonySettings

# The page loads nothing from elsewhere; worklets and sockets are our own.
CONTENT_POLICY = "default-src 'self'; connect-src 'self'; frame-ancestors 'none'"
HTTP_STATUS = {
    **{"bad_ttl": 400, "bad_token": 401, "bad_host": 403, "bad_origin": 403},
    **{"bad_form": 400, "bad_signature": 403, "replayed": 403, "no_such_carrier": 404},
    **{"no_api_key": 409, "too_many_attempts": 429, "no_such_peer": 404, "ice_restart": 409},
    **{"no_such_call": 404, "no_such_ability": 409},
    **{"not_ready": 503, "too_many_sessions": 503},
}
# What a browser asks before it lets a page of another host send more than a form could (Fetch standard, CORS protocol).
# No Allow-Credentials: tokens are sent by the page's own script, never by a cookie.
PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, PATCH, DELETE",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


class Guard:
    """Nobody reaches a door whom `Access` refuses, or who tries too often. A refused handshake gets an HTTP status.

    Doors find the client's name in `state.client` of their request or socket.

    attempts: most of one client in a minute. refused: counts. turn_away: tells a client of a socket why.
    carriers: who may call by telephone, nobody if left out; webhooks are checked where their bodies are read.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        attempts: int,
        refused: Callable[[PeerError], None],
        turn_away: Callable[[WebSocket, PeerError], Awaitable[None]],
        carriers: CarrierAccess | None = None,
    ) -> None:
        self._app = app
        self._access = access
        self._carriers = carriers or CarrierAccess(TelephonySettings(), access.host)
        self._attempts = Attempts(attempts, time.monotonic)
        # Apart, so that who opens many sessions is not kept from ending them, and guesses at any door are counted.
        self._wrong_tokens = Attempts(attempts, time.monotonic)
        self._refused = refused
        self._turn_away = turn_away

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        is_shared = self._access.shares(path, headers.get("origin", ""))
        send = _with_headers(send, path, headers.get("origin") if is_shared else None)
        try:
            self._access.check_page(path, headers)
            if is_shared and _is_preflight(scope, headers):
                await Response(status_code=204, headers=PREFLIGHT)(scope, receive, send)
                return
            self._admit(scope, headers)
        except PeerError as error:
            await self._refuse(error, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Raises PeerError: too_many_attempts, bad_token, or what `CarrierAccess` has against it."""
        path = scope["path"]
        address = scope["client"][0] if scope.get("client") else ""
        client = client_name(address, behind_proxy=self._access.behind_proxy)
        scope.setdefault("state", {})["client"] = client
        if path.startswith(TELEPHONY):
            if scope["type"] == "websocket":
                carrier, token = carrier_and_token(path)
                self._carriers.check_handshake(carrier, target_of(scope), headers, token, client)
            return
        if is_session_door(path) and (scope["type"] == "websocket" or scope["method"] == "POST"):
            self._attempts.check(client)
            self._attempts.add(client)
        if self._access.asks_token(path):
            self._wrong_tokens.check(client)  # before the token is looked at: else guessing goes on, unanswered
        try:
            self._access.check_token(path, headers, QueryParams(scope["query_string"]))
        except PeerError:
            self._wrong_tokens.add(client)
            raise

    async def _refuse(self, error: PeerError, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "websocket" and not scope["path"].startswith(TELEPHONY)
        if is_page and error.code == "too_many_attempts":  # a browser shows its page no HTTP status
            await self._turn_away(WebSocket(scope, receive, send), error)
            return
        self._refused(error)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(refusal(error))
        else:
            await refusal(error)(scope, receive, send)


def refusal(error: PeerError) -> Response:
    """The HTTP answer that tells a client why."""
    return JSONResponse({"type": "error", "code": error.code, "message": str(error)}, HTTP_STATUS.get(error.code, 400))


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _with_headers(send: Send, path: str, shared_with: str | None) -> Send:
    """shared_with: the page of another host that may read the answer."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = CONTENT_POLICY
            headers["x-content-type-options"] = "nosniff"
            headers["referrer-policy"] = "no-referrer"
            if path.startswith(API):
                headers.add_vary_header("Origin")
            if shared_with is not None:
                headers["access-control-allow-origin"] = shared_with
                headers["access-control-expose-headers"] = "Location"
        await send(message)

    return send_with_headers
