"""Which kinds of stage there are: settings, what they take and give, and how they are built."""

from pathlib import Path
from typing import assert_never

from voice_runtime import assets
from voice_runtime.stages import asr, code2wav, speech, talker, text, thinker, turn_end
from voice_runtime.stages.asr import AsrSettings
from voice_runtime.stages.base import Stage
from voice_runtime.stages.code2wav import Code2WavSettings
from voice_runtime.stages.payloads import (
    Clause,
    Codes,
    Heard,
    Payload,
    Prompt,
    SpokenClause,
    TokenIds,
    Transcript,
    TurnEnd,
    Utterance,
)
from voice_runtime.stages.speech import SpeechSettings
from voice_runtime.stages.talker import TalkerSettings
from voice_runtime.stages.text import TextSettings
from voice_runtime.stages.thinker import ThinkerSettings
from voice_runtime.stages.turn_end import TurnEndSettings

AnySettings = (
    AsrSettings | TurnEndSettings | ThinkerSettings | TextSettings | SpeechSettings | TalkerSettings | Code2WavSettings
)

TAKES: dict[type[AnySettings], type[Payload]] = {
    AsrSettings: Utterance,
    TurnEndSettings: Heard,
    ThinkerSettings: Prompt,
    TextSettings: TokenIds,
    SpeechSettings: Clause,
    TalkerSettings: Clause,
    Code2WavSettings: Codes,
}
GIVES: dict[type[AnySettings], type[Payload]] = {
    AsrSettings: Transcript,
    TurnEndSettings: TurnEnd,
    ThinkerSettings: TokenIds,
    TextSettings: Clause,
    SpeechSettings: SpokenClause,
    TalkerSettings: Codes,
    Code2WavSettings: SpokenClause,
}
# SGLang keeps process-wide state: a stage of these kinds needs a worker of its own.
ALONE = (ThinkerSettings, TalkerSettings)


_HIBARI = tuple(asset.name for asset in assets.ASSETS if asset.name.startswith("hibari/"))


def build(settings: AnySettings) -> Stage:
    """Load the model of a stage and put it behind its scheduler. Only workers call this."""
    match settings:
        case AsrSettings():
            return asr.build(settings)
        case TurnEndSettings():
            return turn_end.build(settings)
        case ThinkerSettings():
            return thinker.build(settings)
        case TextSettings():
            return text.build(settings)
        case SpeechSettings():
            return speech.build(settings)
        case TalkerSettings():
            return talker.build(settings)
        case Code2WavSettings():
            return code2wav.build(settings)
        case _:
            assert_never(settings)


def stage_assets(settings: AnySettings) -> tuple[str, ...]:
    """Names of the installed weights that a stage uses."""
    match settings:
        case AsrSettings():
            return ("moonshine-encoder", "moonshine-decoder", "moonshine-tokenizer")
        case TurnEndSettings():
            return ("smart-turn",)
        case ThinkerSettings(model=model) | TextSettings(model=model):
            return (assets.GGUF.name,) if model == thinker.DEFAULT_MODEL else ()
        case SpeechSettings():
            return _HIBARI
        case TalkerSettings():
            return ("voice-talker", *_HIBARI)
        case Code2WavSettings():
            return ("voice-code2wav",)
        case _:
            assert_never(settings)


def missing_model(settings: AnySettings) -> str | None:
    """The model folder that a stage names and that is not there."""
    if not isinstance(settings, ThinkerSettings | TextSettings) or settings.model == thinker.DEFAULT_MODEL:
        return None
    return None if (Path(settings.model) / "tokenizer.json").is_file() else settings.model
