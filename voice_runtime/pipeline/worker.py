"""A worker process: the stages of one worker name, fed from the gateway's socket until the gateway ends."""

import logging
import os
import select
import threading
import warnings
from pathlib import Path

import zmq

from voice_runtime.pipeline import pools, wire
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.pipeline.registry import build
from voice_runtime.stages.base import Stage

logger = logging.getLogger(__name__)

NICENESS = 5  # below the gateway, whose 20 ms frames must not wait for a forward pass


def run(config: PipelineConfig, stage_name: str, folder: Path) -> None:
    """Serve until the gateway ends or a stage dies.

    stage_name: the stages that share its worker are served with it.
    folder: where the gateway's sockets are.
    """
    os.nice(NICENESS)
    quieten_libraries()
    name = config.stages[stage_name].worker
    link = _Link(folder, name)
    link.send(wire.Hello(name, os.getpid()))
    stages = {stage: build(config.stages[stage]) for stage in config.workers()[name]}
    for stage in stages.values():
        stage.start()
    for stage_name, stage in stages.items():
        threading.Thread(target=_deliver, args=(stage_name, stage, link), name=f"{stage_name}-out", daemon=True).start()
    link.send(wire.Ready(name, pools.count()))
    logger.info("worker %s is ready: %s", name, ", ".join(stages))
    link.serve(stages)


class _Link:
    """Both sockets of a worker. `send` may be called from any thread; `serve` is the one reader."""

    def __init__(self, folder: Path, worker: str) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._in = wire.open_pair(context)
        self._in.connect(wire.address(folder, worker, "in"))
        self._out = wire.open_pair(context)
        self._out.connect(wire.address(folder, worker, "out"))
        self._lock = threading.Lock()

    def send(self, message: wire.FromWorker) -> None:
        """Never blocks. A gateway that takes nothing is gone: the worker ends."""
        try:
            with self._lock:
                self._out.send(wire.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            logger.critical("%s messages wait for the gateway, expected it to take them", wire.HIGH_WATER_MARK)
            os._exit(1)

    def serve(self, stages: dict[str, Stage]) -> None:
        while True:
            message = wire.decode_to_worker(self._in.recv())
            if isinstance(message, wire.Welcome):
                _end_with(message.pid)
                continue
            stages[message.stage].receive(message.message)


def _deliver(name: str, stage: Stage, link: _Link) -> None:
    for message in stage.results():
        link.send(wire.FromStage(name, message))
    logger.critical("the scheduler of stage %s has ended, expected it to run", name)
    os._exit(1)


def _end_with(pid: int) -> None:
    """End this process when the gateway ends, also when it is not our parent."""

    def wait() -> None:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            os._exit(0)
        select.select([watched], [], [])
        os._exit(0)

    threading.Thread(target=wait, name="gateway-watch", daemon=True).start()


def quieten_libraries() -> None:
    """Optional imports that libraries miss are no news to a user; our own warnings stay."""
    warnings.filterwarnings("ignore", module=r"(sglang|transformers|torch|compressed_tensors)\b.*")
    for name in ("sglang", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
