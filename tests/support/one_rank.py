"""One rank of tensor parallelism in a process of its own: prints the tokens of six requests as JSON.

python -m tests.support.one_rank FOLDER RANK COUNT STORE
"""

import json
import sys
from pathlib import Path

from tests.support.tiny_llama import prompt
from voice_runtime.runner.generate import Generate
from voice_runtime.sglang_backend.engine import EngineSettings, Ranks, SglangEngine

REQUESTS = (
    Generate(prompt(1, 12), 12),
    Generate(prompt(2, 40), 9),
    Generate(prompt(3, 5), 14, temperature=1.1, seed=7),
    Generate(prompt(4, 22), 12, temperature=0.9, top_p=0.9, seed=8),
    Generate(prompt(5, 9), 12, temperature=1.2),  # its seed comes from its id, for as long as a seeded one is there
    Generate(prompt(6, 9), 12, repetition_penalty=1.3),
)


def main(folder: Path, rank: int, count: int, store: Path) -> None:
    settings = EngineSettings(
        model=folder,
        dtype="float32",
        kv_tokens=400,
        context_tokens=300,
        chunked_prefill_tokens=32,
        ranks=Ranks(count, rank, store if count > 1 else None),
    )
    engine = SglangEngine(settings)
    engine.open()
    tokens: dict[str, list[int]] = {}
    for number, generate in enumerate(REQUESTS):
        engine.add(f"{number:08d}", generate)
        tokens[f"{number:08d}"] = []
    while not engine.is_idle():
        for output in engine.step():
            tokens[output.request_id] += output.items
    print(json.dumps({"tokens": tokens, "held": engine.held()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
