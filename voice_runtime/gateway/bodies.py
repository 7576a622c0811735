"""What comes with a request, read no further than it may be long."""

from starlette.requests import Request

from voice_runtime.errors import PeerError


async def read_text(request: Request, content_type: str, most_bytes: int, code: str) -> str:
    """The request's text.

    Raises:
        PeerError: it is of another type, or longer than most_bytes, of which no more is read.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found != content_type:
        raise PeerError(code, f"Content-Type is {found[:60]!r}, expected {content_type}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise PeerError(code, f"more than {most_bytes} bytes, expected at most so many")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise PeerError(code, f"{error}, expected UTF-8") from None
