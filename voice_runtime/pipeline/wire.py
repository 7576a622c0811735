"""What passes between the gateway and its workers: msgspec messages over one PAIR socket per worker and direction."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq

from voice_runtime.errors import ConfigError
from voice_runtime.schedulers.messages import (
    Abort,
    Aborted,
    Chunk,
    Failed,
    Finished,
    Inquire,
    Ledger,
    NewRequest,
    StreamChunk,
    StreamDone,
)
from voice_runtime.stages.payloads import Payload

# Messages that may wait in a socket. A reply is a few hundred; a full queue means that the other side has stopped.
HIGH_WATER_MARK = 2_000


S = TypeVar("S", bound=zmq.Socket[Any])


class ToStage(msgspec.Struct, frozen=True, tag=True):
    stage: str
    message: NewRequest[Payload] | StreamChunk[Payload] | StreamDone | Abort | Inquire


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The gateway's answer to Hello. pid: the worker ends when this process does."""

    pid: int


class FromStage(msgspec.Struct, frozen=True, tag=True):
    stage: str
    message: Chunk[Payload] | Finished[Payload] | Failed | Aborted | Ledger


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A worker has started and begins to load."""

    worker: str
    pid: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Every stage of the worker is warm. pools: threads of each compute pool."""

    worker: str
    pools: dict[str, int]


ToWorker = ToStage | Welcome
FromWorker = FromStage | Hello | Ready

_encoder = msgspec.msgpack.Encoder()
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_from_worker = msgspec.msgpack.Decoder(FromWorker)


def encode(message: ToWorker | FromWorker) -> bytes:
    return _encoder.encode(message)


def decode_to_worker(data: bytes) -> ToWorker:
    """Raises msgspec.DecodeError."""
    return _to_worker.decode(data)


def decode_from_worker(data: bytes) -> FromWorker:
    """Raises msgspec.DecodeError."""
    return _from_worker.decode(data)


def address(folder: Path, worker: str, direction: str) -> str:
    """Where the gateway listens. direction: "in" (to the worker) or "out" (from it)."""
    return f"ipc://{folder}/{worker}.{direction}"


def open_pair(context: zmq.Context[S]) -> S:
    """A PAIR socket of the context's own kind, plain or asyncio."""
    socket = context.socket(zmq.PAIR)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.set(zmq.RCVHWM, HIGH_WATER_MARK)
    return socket


def runtime_folder(name: str) -> Path:
    """The private folder of a pipeline's sockets, made when it is not there.

    VOICE_RUNTIME_DIR names it; else XDG_RUNTIME_DIR or /tmp with the user's id.

    Raises:
        ConfigError: the folder belongs to somebody else or others can open it.
    """
    base = os.environ.get("VOICE_RUNTIME_DIR")
    if base is None:
        run = os.environ.get("XDG_RUNTIME_DIR")
        base = f"{run}/voice_runtime" if run else f"/tmp/voice_runtime-{os.getuid()}"
    folder = Path(base) / name
    for private in (folder.parent, folder):
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = private.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            mode = found.st_mode & 0o777
            raise ConfigError(f"{private} has owner {found.st_uid} and mode {mode:o}, expected ours and 700")
    return folder


@contextlib.contextmanager
def only_gateway(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; a second gateway would take the first one's sockets away.

    Raises:
        ConfigError: another gateway holds it.
    """
    with (folder / "gateway.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another gateway uses {folder}, expected a VOICE_RUNTIME_DIR of our own") from None
        yield
