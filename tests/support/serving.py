"""A served pipeline as a user has it: `voice-runtime serve` in a process of its own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from voice_runtime.cli import default_pipeline

START_S = 120.0


@dataclass(slots=True)
class Served:
    """A running server. port: on 127.0.0.1. log: what it printed so far. headers: of requests that bring no others."""

    process: subprocess.Popen[str]
    port: int = 0
    log: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Status and body."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers=self.headers if headers is None else headers
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def json(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.get(path)[1])
        return answer

    def resources(self) -> dict[str, Any]:
        return self.json("/debug/resources")

    def worker_pid(self, worker: str) -> int:
        return int(self.resources()["workers"][worker]["pid"])

    def poll(self, found: Any, what: str, timeout_s: float = 60.0) -> Any:
        """Ask `found()` until it gives something true: the server is another process, which cannot wake us."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            if value := found():
                return value
            time.sleep(0.02)
        raise TimeoutError(f"{what}: not within {timeout_s} s")

    def wait_ready(self) -> None:
        self.poll(lambda: self.get("/health")[0] == 200, "health is ready", START_S)

    def wait_idle(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """Resources once nothing is held any more."""

        def idle() -> dict[str, Any] | None:
            resources = self.resources()
            return resources if is_idle(resources) else None

        resources: dict[str, Any] = self.poll(idle, "nothing is held", timeout_s)
        return resources


def is_idle(resources: dict[str, Any]) -> bool:
    """No request anywhere, KV is whole, no vocoder slot is taken."""
    stages = resources["stages"]
    if resources["requests"] or any(held is None or held["live_requests"] for held in stages.values()):
        return False
    return all(is_given_back(held) for held in stages.values())


def is_given_back(held: dict[str, int]) -> bool:
    """What a stage has of scarce things is all free; one that has none is always well."""
    return not held.get("vocoder_slots") and ("kv_total" not in held or kv_is_whole(held))


def kv_is_whole(held: dict[str, int]) -> bool:
    """Source: SGLang keeps finished pages in its radix tree, so free pages are the available and the evictable."""
    return (
        held["kv_available"] + held["kv_evictable"] == held["kv_total"]
        and held["kv_protected"] == 0
        and held["slots_available"] == held["slots_total"]
        and held["generations"] == 0
    )


@contextlib.contextmanager
def serving(pipeline: Path | None = None, **environment: str) -> Iterator[Served]:
    """Serve a pipeline on a free port and wait until it is ready."""
    with started(pipeline, **environment) as server:
        server.wait_ready()
        yield server


@contextlib.contextmanager
def started(pipeline: Path | None = None, **environment: str) -> Iterator[Served]:
    """The same without waiting until it is ready; `port` is known."""
    with running("serve", str(pipeline or default_pipeline()), "--port", "0", **environment) as server:
        server.poll(lambda: server.port or server.process.poll() is not None, "the server listens", START_S)
        if server.process.poll() is not None:
            raise RuntimeError(f"the server ended with {server.process.returncode}: {''.join(server.log[-20:])}")
        yield server


@contextlib.contextmanager
def running(*arguments: str, **environment: str) -> Iterator[Served]:
    """`voice-runtime` with these arguments, ended with the context."""
    process = subprocess.Popen(
        [sys.executable, "-m", "voice_runtime.cli", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    server = Served(process)
    reader = threading.Thread(target=_read, args=(server,), name="server log", daemon=True)
    reader.start()
    try:
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        reader.join(5)
        assert process.stdout is not None
        process.stdout.close()


def descendants(pid: int) -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    return children


def _read(server: Served) -> None:
    assert server.process.stdout is not None
    for line in server.process.stdout:
        server.log.append(line)
        if found := re.search(r"[Ll]istening on \S+:(\d+)", line):
            server.port = int(found[1])
