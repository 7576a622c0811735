"""The pipeline file: strict TOML, checked whole before anything is started."""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from voice_runtime.errors import ConfigError
from voice_runtime.pipeline.registry import ALONE, GIVES, TAKES, AnySettings, missing_model, stage_assets
from voice_runtime.stages.base import Name
from voice_runtime.stages.payloads import Clause, Heard, Payload, Prompt, SpokenClause, Utterance
from voice_runtime.stages.text import TextSettings

Probability = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[int, Meta(ge=1, le=60_000)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]  # a year: NaN and infinity are no times
Phrase = Annotated[str, Meta(min_length=1, max_length=40)]
Sentence = Annotated[str, Meta(min_length=1, max_length=500)]
TwoFramesOrMore = Annotated[int, Meta(ge=40)]  # with less, the next frame would leave only once the last is played

BACKCHANNELS = (
    *("yeah", "yes", "yep", "yup", "okay", "ok", "right", "sure", "alright", "all right", "exactly", "true", "indeed"),
    *("i see", "got it", "of course", "go on", "please go on", "aha", "wow", "really", "cool", "nice", "great", "good"),
    *("interesting", "makes sense", "i know", "that's right", "fair enough", "very nice"),
)


class TurnSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When the caller has the floor.

    voice_threshold: Silero probability from which a frame is voice. quiet_threshold: below which it is silence.
    onset_ms: voice for so long is speech; shorter is a click.
    end_silence_ms: so much silence ends a turn. likely_end_silence_ms: the same when Smart Turn finds it complete.
    unfinished_silence_ms: the same when the words so far want more: a last "and", "um" or "the".
    ask_silence_ms: after so much silence Smart Turn is asked. complete_probability: from which it counts as complete.
    draft_silence_ms: after so much silence the words so far are recognised and answered, in case that they are all.
    draft: False waits with both until the turn is over; partial transcripts then come only with an interruption.
    pre_roll_ms: sound kept from before the onset. longest_turn_s: a turn is cut there; the recogniser takes
        30 s.
    stalled_s: no audio from the client for so long counts as silence (a muted microphone sends none).

    What a possible interruption is, while the agent answers:

    hold_ms: voice for so long makes the agent pause; it goes on from the same sample if it was nothing.
    judge_ms: what is said over the agent is recognised each time that so much voice was added, and when it pauses.
    interrupt_words: so many words that are no backchannel interrupt.
    interrupt_ms: so much voice interrupts whatever the words are; also the longest that the agent waits.
    backchannels: what a listener says to agree. What sounds like "mm-hm" or "uh" is one without being named.
    """

    voice_threshold: Probability = 0.5
    quiet_threshold: Probability = 0.35
    onset_ms: Milliseconds = 96
    end_silence_ms: Milliseconds = 800
    likely_end_silence_ms: Milliseconds = 352
    unfinished_silence_ms: Milliseconds = 1_600
    ask_silence_ms: Milliseconds = 192
    complete_probability: Probability = 0.5
    draft: bool = True
    draft_silence_ms: Milliseconds = 96
    pre_roll_ms: Annotated[int, Meta(ge=0, le=900)] = 320
    longest_turn_s: Annotated[float, Meta(ge=1, le=29)] = 29.0
    stalled_s: Seconds = 1.0
    hold_ms: Milliseconds = 64
    judge_ms: Milliseconds = 416
    interrupt_words: Annotated[int, Meta(ge=1)] = 1
    interrupt_ms: Annotated[int, Meta(ge=1, le=20_000)] = 5_000
    backchannels: Annotated[tuple[Phrase, ...], Meta(max_length=100)] = BACKCHANNELS

    def __post_init__(self) -> None:
        if self.quiet_threshold > self.voice_threshold:
            raise ValueError(f"quiet_threshold is {self.quiet_threshold}, expected at most {self.voice_threshold}")
        if self.likely_end_silence_ms > self.end_silence_ms:
            raise ValueError(
                f"likely_end_silence_ms is {self.likely_end_silence_ms}, expected at most {self.end_silence_ms}"
            )
        if self.draft_silence_ms > self.likely_end_silence_ms:
            raise ValueError(
                f"draft_silence_ms is {self.draft_silence_ms}, expected at most {self.likely_end_silence_ms}"
            )


class SessionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a session does with the stages.

    recognise, judge_turn, reply, speak: names of the stages that take an utterance, the caller's last seconds, a
        conversation, a clause to say. Without `speak` the agent says nothing of its own.
    lead_ms: most audio sent ahead of play-out. history_turns: turns that the thinker is shown.
    longest_reply_s: a reply's sound is cut there. request_deadline_s: a stage request that has not ended is given up.
    instructions: a system message for the thinker, in place of its stage's.
    greeting: said when a session begins. idle_s: when nobody has said anything for so long, the next of idle_prompts is
        said, and after the last of them goodbye, which ends the session; 0 waits for ever.
    resume_s: so long after a connection was lost its conversation can be gone on with; 0 forgets it at once.
    """

    recognise: str
    judge_turn: str | None = None
    reply: str
    speak: str | None = None
    lead_ms: TwoFramesOrMore = 400
    history_turns: Annotated[int, Meta(ge=0)] = 6
    longest_reply_s: Seconds = 120.0
    request_deadline_s: Seconds = 60.0
    instructions: Annotated[str, Meta(max_length=2_000)] = ""
    greeting: Annotated[str, Meta(max_length=500)] = ""
    idle_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0
    idle_prompts: Annotated[tuple[Sentence, ...], Meta(max_length=20)] = ("Are you still there?",)
    goodbye: Sentence = "I will hang up now. Goodbye."
    resume_s: Annotated[float, Meta(ge=0, le=86_400)] = 120.0
    turn: TurnSettings = TurnSettings()

    def __post_init__(self) -> None:
        if self.speak is None and (self.greeting or self.idle_s):
            raise ValueError("speak is missing, expected the stage that says the greeting and the idle prompts")


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a server allows. session_s: longest session. send_s: a client that takes nothing for so long is dropped."""

    sessions: Annotated[int, Meta(ge=1)] = 8
    session_s: Seconds = 3600.0
    send_s: Seconds = 10.0


class RecordingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keeps every session in a folder: both voices in a stereo WAV file, the events in JSON.

    longest_s: so much of a session is kept.
    """

    folder: Annotated[str, Meta(min_length=1)]
    longest_s: Seconds = 3600.0


class IceServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A STUN or TURN server, as WebRTC's RTCIceServer names it: urls like stun:host:port, turn:host:port."""

    urls: Annotated[str, Meta(pattern=r"^(stun|turns?):[^\s?]+(\?transport=(udp|tcp))?$")]
    username: str | None = None
    credential: str | None = None


class WebRtcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """ice_servers: none by default, which does on one machine and in one network. They are told to the page too."""

    ice_servers: tuple[IceServer, ...] = ()


class PipelineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole pipeline file."""

    name: Name
    stages: dict[Name, AnySettings]
    session: SessionSettings
    limits: LimitSettings = LimitSettings()
    recording: RecordingSettings | None = None
    webrtc: WebRtcSettings = WebRtcSettings()

    def workers(self) -> dict[str, list[str]]:
        """Worker name -> the stages it runs."""
        workers: dict[str, list[str]] = {}
        for name, stage in self.stages.items():
            workers.setdefault(stage.worker, []).append(name)
        return workers

    @property
    def text_settings(self) -> TextSettings:
        """How text is cut into clauses: as the text stage does, or by the defaults."""
        stages = (stage for stage in self.stages.values() if isinstance(stage, TextSettings))
        return next(stages, TextSettings(worker="none"))

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
    if session.speak is not None:
        _check_entry(config, "speak", session.speak, Clause)
    if session.judge_turn is not None:
        _check_entry(config, "judge_turn", session.judge_turn, Heard)
    for entry in (session.reply, session.speak or session.reply):
        last = config.chain(entry)[-1]
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
