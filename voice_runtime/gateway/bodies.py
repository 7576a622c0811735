"""What comes with a request, read no further than it may be long."""

import contextlib

from starlette.requests import ClientDisconnect, Request

from voice_runtime.errors import PeerError


async def read_bytes(request: Request, most_bytes: int) -> bytes:
    """The request's body; of too much only as much as shows it, of a client who leaves what has come."""
    body = b""
    with contextlib.suppress(ClientDisconnect):
        async for piece in request.stream():
            body += piece
            if len(body) > most_bytes:
                break
    return body[: most_bytes + 1]


async def read_text(request: Request, content_type: str, most_bytes: int, code: str) -> str:
    """The request's text.

    Raises:
        PeerError: it is of another type, or longer than most_bytes, of which no more is read.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found != content_type:
        raise PeerError(code, f"Content-Type is {found[:60]!r}, expected {content_type}")
    body = await read_bytes(request, most_bytes)
    if len(body) > most_bytes:
        raise PeerError(code, f"more than {most_bytes} bytes, expected at most so many")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise PeerError(code, f"{error}, expected UTF-8") from None
