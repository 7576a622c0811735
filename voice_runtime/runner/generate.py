"""What an engine is asked to generate. Plain values; no engine or model is known here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from voice_runtime.errors import RequestError


@dataclass(frozen=True, slots=True)
class Generate:
    """One generation.

    ids: prompt token ids. stop_ids: token ids that end the answer, as the model's own end of sequence does; whichever
        ended it is not part of it.
    temperature: 0 is greedy. top_k: most likely tokens to draw from, None: all. top_p: their probability in all.
    min_p: refused unless 0, since seeded drawing has no such rule and any batch may come to hold a seed.
    repetition_penalty: as Hugging Face's RepetitionPenaltyLogitsProcessor, over prompt and answer; 1 is none.
    seed: of the drawing; the same seed draws the same tokens from the same logits, whatever else is in the batch.
    conditioning: what the model's runner needs beside the ids, see the runner; its positions are never shared between
        requests, however equal the ids are.

    Raises:
        RequestError: a value is out of range.
    """

    ids: Sequence[int]
    max_new_tokens: int
    stop_ids: Sequence[int] = ()
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    conditioning: Any = None

    def __post_init__(self) -> None:
        for field in ("max_new_tokens", "seed", "top_k"):
            whole = getattr(self, field)
            if type(whole) is not int and (whole is not None or field == "max_new_tokens"):
                raise RequestError(f"{field} is {whole!r}, expected a whole number")
        if self.min_p != 0:
            raise RequestError(f"min_p is {self.min_p}, expected 0: seeded drawing does not know it")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise RequestError(f"seed is {self.seed}, expected 0 to 2**63 - 1")
        for name, value, least, most in (
            ("temperature", self.temperature, 0.0, 2.0),
            ("top_p", self.top_p, 1e-6, 1.0),
            ("repetition_penalty", self.repetition_penalty, 1e-3, 2.0),
        ):
            if not least <= value <= most:
                raise RequestError(f"{name} is {value}, expected {least} to {most}")
        if self.top_k is not None and self.top_k < 1:
            raise RequestError(f"top_k is {self.top_k}, expected at least 1")
