"""One real SGLang engine in the test process (upstream allows one a process): the default thinker in fp32.

Other processes, with engines of other settings, run beside it.
"""

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import own_process
from tests.support.ar import Ar
from voice_runtime import assets
from voice_runtime.schedulers.ar import ArScheduler, WholePrompt
from voice_runtime.sglang_backend.engine import EngineSettings, SglangEngine

# Small, so that waiting, chunked prefill and a full pool really happen.
SETTINGS: dict[str, Any] = {"kv_tokens": 600, "context_tokens": 560, "max_running": 8, "max_waiting": 8}

OWN_PROCESSES_AT_ONCE = 2  # of one thread each; the machines that run this have two cores


@pytest.fixture(scope="session", autouse=True)
def own_processes(
    request: pytest.FixtureRequest,
) -> "Iterator[dict[Path, Future[subprocess.CompletedProcess[str]]]]":
    """What the files of checks that this session will look at come to: they are begun with the first test here."""
    test_ids = [item.nodeid for item in request.session.items]
    awaited = [path for path in own_process.FILES if any(f"[{path.stem}]" in test_id for test_id in test_ids)]
    pool = ThreadPoolExecutor(OWN_PROCESSES_AT_ONCE)
    try:
        yield {path: pool.submit(own_process.run, path, "not soak") for path in awaited}
    finally:
        pool.shutdown(cancel_futures=True)  # after a session that was stopped early none is begun


@pytest.fixture(scope="session")
def scheduler() -> Iterator[Ar]:
    settings = EngineSettings(model=assets.thinker_folder(), dtype="float32", chunked_prefill_tokens=64, **SETTINGS)
    scheduler: Ar = ArScheduler(SglangEngine(settings), lambda generate: WholePrompt(generate, list))
    scheduler.start()
    yield scheduler
    scheduler.stop()


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(assets.thinker_folder() / "tokenizer.json"))
