"""One real SGLang engine in the test process (upstream allows one a process): the default thinker in fp32."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.ar import Ar
from voice_runtime import assets
from voice_runtime.schedulers.ar import ArScheduler, WholePrompt
from voice_runtime.sglang_backend.engine import EngineSettings, SglangEngine

# Small, so that waiting, chunked prefill and a full pool really happen.
SETTINGS: dict[str, Any] = {"kv_tokens": 600, "context_tokens": 560, "max_running": 8, "max_waiting": 8}


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
