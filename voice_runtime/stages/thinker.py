"""The thinker: the conversation in, tokens of the answer out. Any Hugging Face folder that SGLang serves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from voice_runtime import assets
from voice_runtime.schedulers.ar import ArScheduler
from voice_runtime.schedulers.messages import NewRequest
from voice_runtime.sglang_backend.engine import EngineSettings, Generate, SglangEngine
from voice_runtime.stages.base import Stage, StageSettings
from voice_runtime.stages.payloads import Message, Prompt, TokenIds

DEFAULT_MODEL = "smollm2-135m-instruct"


class Shot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One example turn that the model sees before the conversation."""

    user: str
    assistant: str


class ThinkerSettings(StageSettings, frozen=True, tag="thinker.sglang", kw_only=True):
    """What the thinker is and how it answers.

    model: "smollm2-135m-instruct" (comes with the installation) or a Hugging Face folder.
    instructions: system message; None sends none. few_shot: example turns; their KV pages stay in the radix cache.
    chat_template: a Jinja template in place of the folder's own.
    stop_ids: token ids that end an answer. max_new_tokens: longest answer.
    dtype, kv_tokens, context_tokens, max_running: see EngineSettings.
    """

    model: str = DEFAULT_MODEL
    instructions: str | None = None
    few_shot: tuple[Shot, ...] = ()
    chat_template: str | None = None
    stop_ids: tuple[int, ...]
    max_new_tokens: int = 96
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    dtype: str = "bfloat16"
    kv_tokens: int = 16_384
    context_tokens: int = 2_048
    max_running: int = 8


def model_folder(settings: ThinkerSettings) -> Path:
    return assets.thinker_folder() if settings.model == DEFAULT_MODEL else Path(settings.model)


def build(settings: ThinkerSettings) -> Stage:
    folder = model_folder(settings)
    engine_settings = EngineSettings(
        model=folder,
        dtype=settings.dtype,
        kv_tokens=settings.kv_tokens,
        context_tokens=settings.context_tokens,
        max_running=settings.max_running,
    )
    engine = SglangEngine[Prompt](engine_settings, request_builder(settings, folder))
    # The example turns enter the radix cache here: a caller's first question prefills only its own words.
    warm_up = NewRequest("warm-up", Prompt([Message("user", "Hello.")]))
    return Stage(ArScheduler(engine, TokenIds), warm_up=[warm_up])


def without_oldest(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """A conversation without its oldest question and answer; of a single message, its second half."""
    if len(turns) > 1:
        return turns[2:] or turns[1:]
    text = turns[0]["content"]
    return [{**turns[0], "content": text[len(text) // 2 + 1 :]}]


def request_builder(settings: ThinkerSettings, folder: Path) -> Callable[[Prompt], Generate]:
    """Conversation -> prompt tokens, by the chat template. The tokenizer is loaded on first use."""
    opening = [{"role": "system", "content": settings.instructions}] if settings.instructions else []
    for shot in settings.few_shot:
        opening += [{"role": "user", "content": shot.user}, {"role": "assistant", "content": shot.assistant}]
    tokenizer: Any = None

    def tokens_of(turns: list[dict[str, str]]) -> list[int]:
        text = tokenizer.apply_chat_template(
            opening + turns, chat_template=settings.chat_template, tokenize=False, add_generation_prompt=True
        )
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    def plain(text: str) -> str:
        """A caller's words without the template's own marks: nobody types himself into another role."""
        for mark in tokenizer.all_special_tokens:
            text = text.replace(mark, " ")
        return text

    def build_request(prompt: Prompt) -> Generate:
        nonlocal tokenizer
        if tokenizer is None:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(folder))
        turns = [{"role": message.role, "content": plain(message.text)} for message in prompt.messages]
        ids = tokens_of(turns)
        while len(ids) + settings.max_new_tokens > settings.context_tokens and turns[-1]["content"]:
            turns = without_oldest(turns)
            ids = tokens_of(turns)
        return Generate(
            ids=ids,
            max_new_tokens=settings.max_new_tokens,
            stop_ids=settings.stop_ids,
            temperature=settings.temperature,
            top_p=settings.top_p,
            repetition_penalty=settings.repetition_penalty,
        )

    return build_request
