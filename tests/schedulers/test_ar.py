"""ArScheduler beside its engine, which is played here. On real ones: tests/sglang_backend/."""

from collections.abc import Iterator, Mapping, Sequence

from voice_runtime.schedulers.ar import ArScheduler
from voice_runtime.schedulers.engine import Tokens
from voice_runtime.schedulers.messages import Chunk, Finished, NewRequest, StreamChunk, StreamDone

Metrics = Mapping[str, float]


class OneStep:
    """An engine whose generations take a step each and end with the metrics that they are asked for."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, Metrics]] = []

    def open(self) -> None: ...

    def add(self, request_id: str, generate: Metrics) -> None:
        self._asked.append((request_id, generate))

    def abort(self, request_id: str) -> None: ...

    def step(self) -> Iterator[Tokens]:
        asked, self._asked = self._asked, []
        yield from (Tokens(request_id, ["item"], "stop", metrics=metrics) for request_id, metrics in asked)

    def is_idle(self) -> bool:
        return not self._asked

    def held(self) -> dict[str, int]:
        return {}


class InTurn:
    """One generation for each item."""

    def __init__(self, payload: str) -> None:
        self.closed = False
        self._items: list[Metrics] = []

    def push(self, item: Metrics) -> None:
        self._items.append(item)

    def close(self) -> None:
        self.closed = True

    def next(self) -> Metrics | None:
        return self._items.pop(0) if self._items else None

    def result(self, items: Sequence[str]) -> str:
        return "".join(items)


def test_counts_of_a_request_s_generations_add_up_and_its_times_are_the_first_one_s() -> None:
    generations = (
        {"tokens": 2, "first_compute_ms": 40.0, "compute_2_ms": 47.0},
        {"tokens": 3, "first_compute_ms": 50.0, "compute_2_ms": 58.0, "compute_3_ms": 66.0, "retractions": 1},
        {"tokens": 1, "first_compute_ms": 60.0, "retractions": 0},
    )
    scheduler: ArScheduler[Metrics, Metrics, str] = ArScheduler(OneStep(), InTurn)
    scheduler.start()
    scheduler.inbox.put(NewRequest("a", ""))  # type: ignore[arg-type]
    for generation in generations:
        scheduler.inbox.put(StreamChunk("a", generation))
    scheduler.inbox.put(StreamDone("a"))
    came = [scheduler.outbox.take(60) for _ in range(4)]
    scheduler.stop()
    metrics = {"tokens": 6, "first_compute_ms": 40.0, "compute_2_ms": 47.0, "retractions": 1}
    assert came == [Chunk("a", "item")] * 3 + [Finished("a", metrics=metrics)]
