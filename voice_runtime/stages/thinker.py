"""The thinker: the conversation in, tokens of the answer out. Any Hugging Face folder that SGLang serves."""

import itertools
import logging
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from voice_runtime import assets
from voice_runtime.errors import RequestError
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.ar import ArScheduler, WholePrompt
from voice_runtime.schedulers.messages import NewRequest
from voice_runtime.sglang_backend.engine import EngineSettings, SglangEngine
from voice_runtime.stages.base import Stage, StageSettings
from voice_runtime.stages.payloads import CUT, Message, Prompt, TokenIds

logger = logging.getLogger(__name__)
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
    stop_ids: tuple[Annotated[int, Meta(ge=0)], ...]
    max_new_tokens: Annotated[int, Meta(ge=1)] = 96
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    top_k: Annotated[int, Meta(ge=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] = 1.0
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    kv_tokens: Annotated[int, Meta(ge=64)] = 16_384
    context_tokens: Annotated[int, Meta(ge=64)] = 2_048
    max_running: Annotated[int, Meta(ge=1, le=256)] = 8


def model_folder(model: str) -> Path:
    """The folder of a model: the installed one is converted when it is not yet."""
    return assets.thinker_folder() if model == DEFAULT_MODEL else Path(model)


def build(settings: ThinkerSettings) -> Stage:
    folder = model_folder(settings.model)
    engine_settings = EngineSettings(
        model=folder,
        dtype=settings.dtype,
        kv_tokens=settings.kv_tokens,
        context_tokens=settings.context_tokens,
        max_running=settings.max_running,
    )
    builder = RequestBuilder(settings, folder, engine_settings.room_tokens)
    # The example turns enter the radix cache here: a caller's first question prefills only its own words.
    warm_up = NewRequest("warm-up", Prompt([Message("user", "Hello.")]))
    scheduler: ArScheduler[Any, Generate, TokenIds] = ArScheduler(
        SglangEngine(engine_settings), lambda prompt: WholePrompt(builder(prompt), TokenIds)
    )
    return Stage(scheduler, warm_up=[warm_up])


class RequestBuilder:
    """Conversation -> prompt tokens, by the chat template.

    folder: of the model; its tokenizer is loaded on first use. room_tokens: for the prompt and its answer together.
    """

    def __init__(self, settings: ThinkerSettings, folder: Path, room_tokens: int) -> None:
        self._settings = settings
        self._folder = folder
        self._room_tokens = room_tokens

    def __call__(self, prompt: Prompt) -> Generate:
        """Raises RequestError: the template or the tokenizer does not take the conversation."""
        try:
            ids = self._prompt_ids(prompt)
        except Exception as error:
            logger.exception("a prompt cannot be built")
            raise RequestError("the conversation does not suit the model's template or tokenizer") from error
        return Generate(
            ids=ids,
            max_new_tokens=self._settings.max_new_tokens,
            stop_ids=self._settings.stop_ids,
            temperature=self._settings.temperature,
            top_k=self._settings.top_k,
            top_p=self._settings.top_p,
            repetition_penalty=self._settings.repetition_penalty,
            seed=prompt.seed,
        )

    def _prompt_ids(self, prompt: Prompt) -> list[int]:
        opening = _opening(self._settings, prompt.instructions and self._plain(prompt.instructions))
        # A greeting begins the conversation for the caller; templates refuse one that does not begin with the user.
        answered = itertools.dropwhile(lambda message: message.role == "assistant", prompt.messages)
        turns = [{"role": message.role, "content": self._content(message)} for message in answered]
        ids = self._tokens(opening + turns)
        while len(ids) + self._settings.max_new_tokens > self._room_tokens and turns[-1]["content"]:
            turns = _without_oldest(turns)
            ids = self._tokens(opening + turns)
        return ids

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(self._folder))

    @cached_property
    def _marks(self) -> list[str]:
        return [token.content for token in self._tokenizer.added_tokens_decoder.values() if token.special]

    def _content(self, message: Message) -> str:
        """An answer that was cut ends in a dash: the model sees that the caller did not hear the rest."""
        return self._plain(message.text) + (CUT if message.was_cut else "")

    def _plain(self, text: str) -> str:
        """A caller's words without the template's own marks: nobody types himself into another role."""
        for mark in self._marks:
            text = text.replace(mark, " ")
        return text

    def _tokens(self, turns: list[dict[str, str]]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            turns,
            chat_template=self._settings.chat_template,
            tokenize=False,
            add_generation_prompt=True,
        )
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def _opening(settings: ThinkerSettings, own: str | None) -> list[dict[str, str]]:
    """What a conversation begins with: instructions, the session's own before the stage's, and example turns."""
    instructions = own or settings.instructions
    opening = [{"role": "system", "content": instructions}] if instructions else []
    for shot in settings.few_shot:
        opening += [{"role": "user", "content": shot.user}, {"role": "assistant", "content": shot.assistant}]
    return opening


def _without_oldest(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """A conversation without its oldest question and answer; of a single message, its second half."""
    if len(turns) > 1:
        return turns[2:] or turns[1:]
    text = turns[0]["content"]
    return [{**turns[0], "content": text[len(text) // 2 + 1 :]}]
