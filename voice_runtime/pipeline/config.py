"""The pipeline file: strict TOML, checked whole before anything is started."""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from voice_runtime.errors import ConfigError
from voice_runtime.pipeline.registry import ALONE, GIVES, TAKES, AnySettings, missing_model, stage_assets
from voice_runtime.stages.base import Name
from voice_runtime.stages.payloads import Heard, Payload, Prompt, SpokenClause, Utterance

Probability = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]  # a year: NaN and infinity are no times
TwoFramesOrMore = Annotated[int, Meta(ge=40)]  # with less, the next frame would leave only once the last is played


class TurnSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When the caller has the floor.

    voice_threshold: Silero probability from which a frame is voice. quiet_threshold: below which it is silence.
    onset_ms: voice for so long is speech; shorter is a click. interrupt_ms: the same while the agent speaks.
    end_silence_ms: so much silence ends a turn. likely_end_silence_ms: the same when Smart Turn finds it complete.
    ask_silence_ms: after so much silence Smart Turn is asked. complete_probability: from which it counts as complete.
    pre_roll_ms: sound kept from before the onset. longest_turn_s: a turn is cut there; the recogniser takes
        30 s.
    stalled_s: no audio from the client for so long counts as silence (a muted microphone sends none).
    """

    voice_threshold: Probability = 0.5
    quiet_threshold: Probability = 0.35
    onset_ms: Milliseconds = 96
    interrupt_ms: Milliseconds = 160
    end_silence_ms: Milliseconds = 800
    likely_end_silence_ms: Milliseconds = 352
    ask_silence_ms: Milliseconds = 192
    complete_probability: Probability = 0.5
    pre_roll_ms: Annotated[int, Meta(ge=0)] = 320
    longest_turn_s: Annotated[float, Meta(gt=0, le=29.5)] = 29.0
    stalled_s: Seconds = 1.0

    def __post_init__(self) -> None:
        if self.quiet_threshold > self.voice_threshold:
            raise ValueError(f"quiet_threshold is {self.quiet_threshold}, expected at most {self.voice_threshold}")
        if self.likely_end_silence_ms > self.end_silence_ms:
            raise ValueError(
                f"likely_end_silence_ms is {self.likely_end_silence_ms}, expected at most {self.end_silence_ms}"
            )


class SessionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a session does with the stages.

    recognise, judge_turn, reply: names of the stages that take an utterance, the caller's last seconds, a conversation.
    lead_ms: most audio sent ahead of play-out. history_turns: turns that the thinker is shown.
    longest_reply_s: a reply's sound is cut there. request_deadline_s: a stage request that has not ended is given up.
    """

    recognise: str
    judge_turn: str | None = None
    reply: str
    lead_ms: TwoFramesOrMore = 400
    history_turns: Annotated[int, Meta(ge=0)] = 6
    longest_reply_s: Seconds = 120.0
    request_deadline_s: Seconds = 60.0
    turn: TurnSettings = TurnSettings()


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a server allows. session_s: longest session. send_s: a client that takes nothing for so long is dropped."""

    sessions: Annotated[int, Meta(ge=1)] = 8
    session_s: Seconds = 3600.0
    send_s: Seconds = 10.0


class PipelineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole pipeline file."""

    name: Name
    stages: dict[Name, AnySettings]
    session: SessionSettings
    limits: LimitSettings = LimitSettings()

    def workers(self) -> dict[str, list[str]]:
        """Worker name -> the stages it runs."""
        workers: dict[str, list[str]] = {}
        for name, stage in self.stages.items():
            workers.setdefault(stage.worker, []).append(name)
        return workers

    def chain(self, entry: str) -> tuple[str, ...]:
        """The stages that a request passes from `entry` to the session."""
        chain = [entry]
        while (following := self.stages[chain[-1]].next) is not None:
            if following in chain:
                raise ConfigError(f"stage {chain[-1]} leads back to {following}, expected a chain that ends")
            chain.append(following)
        return tuple(chain)


def load(path: Path) -> PipelineConfig:
    """Read and check a pipeline file.

    Raises:
        ConfigError: the file is missing, not TOML, has an unknown or ill-typed key, or its graph does not fit.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
        config = msgspec.convert(table, PipelineConfig)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}") from error
    _check_graph(config)
    for stage in config.stages.values():
        if (model := missing_model(stage)) is not None:
            raise ConfigError(f"{path}: model is {model!r}, expected a Hugging Face folder that is there")
    return config


def needed_assets(config: PipelineConfig) -> frozenset[str]:
    """Names of the installed weights that the stages use."""
    return frozenset(name for stage in config.stages.values() for name in stage_assets(stage))


def _check_graph(config: PipelineConfig) -> None:
    for name, stage in config.stages.items():
        _check_next(config, name, stage)
    for worker, names in config.workers().items():
        alone = [name for name in names if isinstance(config.stages[name], ALONE)]
        if alone and len(names) > 1:
            raise ConfigError(f"worker {worker} runs {', '.join(names)}, expected {alone[0]} alone in its process")
    session = config.session
    _check_entry(config, "recognise", session.recognise, Utterance)
    _check_entry(config, "reply", session.reply, Prompt)
    if session.judge_turn is not None:
        _check_entry(config, "judge_turn", session.judge_turn, Heard)
    last = config.chain(session.reply)[-1]
    if GIVES[type(config.stages[last])] is not SpokenClause:
        raise ConfigError(f"the reply ends at stage {last}, expected a stage that gives SpokenClause")


def _check_next(config: PipelineConfig, name: str, stage: AnySettings) -> None:
    if stage.next is None:
        return
    if stage.next not in config.stages:
        raise ConfigError(f"stage {name} has next = {stage.next!r}, expected one of {sorted(config.stages)}")
    gives, takes = GIVES[type(stage)], TAKES[type(config.stages[stage.next])]
    if gives is not takes:
        raise ConfigError(f"stage {name} gives {gives.__name__}, but its next, {stage.next}, takes {takes.__name__}")


def _check_entry(config: PipelineConfig, role: str, name: str, payload: type[Payload]) -> None:
    if name not in config.stages:
        raise ConfigError(f"session.{role} is {name!r}, expected one of {sorted(config.stages)}")
    takes = TAKES[type(config.stages[name])]
    if takes is not payload:
        raise ConfigError(f"session.{role} is {name}, which takes {takes.__name__}, expected {payload.__name__}")
