"""Runs the gateway: the pipeline's sockets, the worker processes when asked, and uvicorn, on one event loop."""

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from voice_runtime import assets
from voice_runtime.errors import ConfigError
from voice_runtime.gateway.app import Gateway
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.carriers import CarrierAccess
from voice_runtime.gateway.clients import trusted_proxies
from voice_runtime.gateway.tls import server_context
from voice_runtime.gateway.transports.websocket import MOST_MESSAGE_BYTES
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline import wire
from voice_runtime.pipeline.config import PipelineConfig, needed_assets
from voice_runtime.pipeline.runtime import Pipeline
from voice_runtime.pipeline.supervisor import Supervisor

logger = logging.getLogger(__name__)
# Of each connection: the kernel's megabytes would hide many seconds of speech behind a stalled client.
SEND_BUFFER_BYTES = 65_536
PING_S = 10.0  # a WebSocket whose other end is gone without a word is noticed after at most twice as long


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a pipeline is served.

    port: 0 takes a free one. token: see `Access`. supervise: start and keep the workers too.
    web: folder of the page. tls_cert, tls_key: see `server_context`.
    proxies: whose X-Forwarded-For and X-Forwarded-Proto are believed, addresses and networks with commas.
    """

    pipeline_file: Path
    host: str
    port: int
    token: str | None
    supervise: bool
    web: Path
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxies: str = ""


async def serve(config: PipelineConfig, options: ServeOptions, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    on_ready: called with the page's address once every stage is warm.

    Raises:
        ConfigError: `options` would open us to everybody, name no certificate or proxy that can be used, a carrier's
            secret is missing, the sockets' folder is not private, or recordings cannot be written.
        AssetError: a model file is missing.
        OSError: the port is taken.
    """
    proxies = trusted_proxies(options.proxies)
    origins = frozenset(config.access.origins)
    access = Access(options.host, options.token, origins, behind_proxy=bool(proxies))
    carriers = CarrierAccess(config.telephony, options.host, most_wrong=config.limits.attempts_per_minute)
    tls = server_context(options.tls_cert, options.tls_key)
    _check_assets(config)
    _check_recording(config)
    vad = SileroVad(assets.locate("silero-vad"))
    listener = listen(options.host, options.port)
    port = listener.getsockname()[1]
    folder = wire.runtime_folder(f"{config.name}-{port}" if options.supervise else config.name)
    logger.info("listening on %s:%s, loading the models", options.host, port)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(wire.only_gateway(folder))
        if options.supervise:
            stack.enter_context(_removed_at_end(folder))
        if options.supervise:  # entered first: the pipeline is closed before its workers are ended
            await stack.enter_async_context(Supervisor(config, options.pipeline_file, folder))
        pipeline = await stack.enter_async_context(Pipeline(config, folder))
        gateway = Gateway(config, pipeline, vad, access, options.web, carriers)
        stack.push_async_callback(gateway.close)
        await stack.enter_async_context(gateway.phone.listening(options.host))
        server = Server(gateway, tls, proxies)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        serving = tasks.create_task(server.serve(sockets=[listener]), name="uvicorn")
        page = address(options.host, port, is_secure=tls is not None)
        warming = tasks.create_task(_announce(pipeline, page, on_ready), name="announce")
        await stop.wait()
        warming.cancel()
        server.should_exit = True
        await serving


def address(host: str, port: int, *, is_secure: bool) -> str:
    name = "localhost" if host in ("127.0.0.1", "::1") else host
    return f"{'https' if is_secure else 'http'}://{f'[{name}]' if ':' in name else name}:{port}/"


def _check_assets(config: PipelineConfig) -> None:
    """A damaged file is told here, once, and not by a worker that is started again and again."""
    needed = needed_assets(config)
    for name in {"silero-vad", *needed}:
        assets.verify(name)
    if assets.GGUF.name in needed:
        assets.thinker_folder()


def _check_recording(config: PipelineConfig) -> None:
    """A folder that cannot be written is told here, and not by sessions that are said to be kept and are not."""
    if config.recording is None:
        return
    folder = Path(config.recording.folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"recording.folder is {folder}: {error}, expected one that can be written") from error


@contextlib.contextmanager
def _removed_at_end(folder: Path) -> Iterator[None]:
    """The folder of a server on one port is of no use to the next one."""
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _announce(pipeline: Pipeline, page: str, on_ready: Callable[[str], None]) -> None:
    await pipeline.wait_ready()
    on_ready(page)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    listener.bind((host, port))
    listener.listen(128)
    return listener


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours stop the workers too."""

    def __init__(self, gateway: Gateway, tls: ssl.SSLContext | None = None, proxies: Sequence[str] = ()) -> None:
        super().__init__(
            uvicorn.Config(
                gateway.app,
                ws="websockets-sansio",
                ws_max_size=MOST_MESSAGE_BYTES,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PING_S,
                ws_per_message_deflate=False,  # PCM does not compress, and deflate would cost the event loop
                lifespan="off",
                log_config=None,
                access_log=False,  # a token may stand in the query
                timeout_graceful_shutdown=2,
                ssl_context_factory=None if tls is None else lambda config, default: tls,
                forwarded_allow_ips=list(proxies),  # uvicorn's own default believes everybody on this machine
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
