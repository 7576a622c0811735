"""The pipeline file: strict TOML, checked whole before anything is started."""

import re
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
# RFC 6454 section 6.2, as browsers send it: a name in ASCII and lower case, no port where it is the scheme's own.
ORIGIN = re.compile(r"(http|https)://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII)
OWN_PORTS = {("http", "80"), ("https", "443")}
# What carriers call us by: perhaps with a path, where a proxy has one for us; no slash at the end.
PUBLIC_URL = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
EnvironmentName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]

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
    judge_ms: what is said over the agent is recognised each time that so much voice was added, and when it pauses;
        words that are not clear wait for more until likely_end_silence_ms of silence.
    interrupt_words: so many words that are no backchannel interrupt.
    interrupt_ms: so much voice interrupts whatever the words are; also the longest that the agent waits.
    backchannels: what a listener says to agree. What sounds like "mm-hm" or "uh" is one without being named.
    digits_interrupt: a key of the telephone interrupts.
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
    digits_interrupt: bool = False

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
    """What a server allows.

    sessions: open at a time. sessions_per_client: the same of one address. session_s: longest session.
    attempts_per_minute: to open a session, of one address; and as many wrong tokens. Loopback has neither limit.
    send_s: a client that takes nothing for so long is dropped.
    """

    sessions: Annotated[int, Meta(ge=1)] = 8
    sessions_per_client: Annotated[int, Meta(ge=1)] = 4
    attempts_per_minute: Annotated[int, Meta(ge=1, le=1_000)] = 30
    session_s: Seconds = 3600.0
    send_s: Seconds = 10.0


class AccessSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may connect.

    origins: pages of other hosts that may open sessions, scheme://host[:port] as browsers write it.
    """

    origins: Annotated[tuple[str, ...], Meta(max_length=100)] = ()

    def __post_init__(self) -> None:
        for origin in self.origins:
            match = ORIGIN.fullmatch(origin)
            if match is None or match.groups() in OWN_PORTS:
                expected = "scheme://host[:port] in lower case, no path and no port that is the scheme's own"
                raise ValueError(f"origins has {origin!r}, expected {expected}")


class RecordingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keeps every session in a folder: both voices in a stereo WAV file, the events in JSON.

    longest_s: so much of a session is kept.
    """

    folder: Annotated[str, Meta(min_length=1)]
    longest_s: Seconds = 3600.0


class IceServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A STUN or TURN server, as WebRTC's RTCIceServer names it: urls like stun:host:port, turn:host:port."""

    urls: Annotated[str, Meta(pattern=r"^(stun|turns?):[^\s?]+(\?transport=(udp|tcp))?$")]
    username: str | None = None
    credential: str | None = None


class WebRtcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """ice_servers: none by default, which does on one machine and in one network. They are told to the page too."""

    ice_servers: tuple[IceServer, ...] = ()


class CarrierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a carrier proves itself. Secrets stand in the environment: here are the names of their variables.

    token_env: a token of our own choice, which the carrier sends in the path or as `Authorization`.
    """

    token_env: EnvironmentName | None = None


class TwilioSettings(CarrierSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """auth_token_env: the account's auth token, with which Twilio signs."""

    auth_token_env: EnvironmentName | None = None


class PlivoSettings(CarrierSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """auth_token_env: the account's auth token, with which Plivo signs."""

    auth_token_env: EnvironmentName | None = None


class TelnyxSettings(CarrierSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """public_key_env: the account's public key; Telnyx signs webhooks and not handshakes."""

    public_key_env: EnvironmentName | None = None


class VonageSettings(CarrierSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """signature_secret_env: the account's signature secret, with which Vonage signs."""

    signature_secret_env: EnvironmentName | None = None


class AudioSocketSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asterisk's AudioSocket, plain TCP. port: 0 takes a free one.

    uuid_env: the variable with the UUID that calls must have, the protocol's only secret; it travels in the clear.
    """

    port: Annotated[int, Meta(ge=0, le=65_535)] = 9_019
    uuid_env: EnvironmentName | None = None


class TelephonySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which carriers may call; none by default, and each by its table.

    public_url: what they call us by, https://host[:port][/path]: signatures are over it. calls: open at a time.
    instructions: a system message for the thinker in calls; $name stands for a parameter of the call, $call_id and
        $carrier for these. auto: the door for a carrier that its first message tells.
    """

    public_url: Annotated[str, Meta(max_length=500)] | None = None
    calls: Annotated[int, Meta(ge=1)] = 8
    twilio: TwilioSettings | None = None
    plivo: PlivoSettings | None = None
    telnyx: TelnyxSettings | None = None
    vonage: VonageSettings | None = None
    exotel: CarrierSettings | None = None
    asterisk: CarrierSettings | None = None
    freeswitch: CarrierSettings | None = None
    jambonz: CarrierSettings | None = None
    auto: CarrierSettings | None = None
    audiosocket: AudioSocketSettings | None = None
    instructions: Annotated[str, Meta(max_length=2_000)] = ""

    def __post_init__(self) -> None:
        if self.public_url is not None and not PUBLIC_URL.fullmatch(self.public_url):
            expected = "https://host[:port][/path] in lower case, without a slash at the end"
            raise ValueError(f"public_url is {self.public_url!r}, expected {expected}")
        if self.public_url is None and (self.twilio is not None or self.plivo is not None):
            raise ValueError("public_url is missing, expected what Twilio or Plivo calls us by, which they sign")

    def carriers(self) -> dict[str, CarrierSettings]:
        """Those that may call."""
        all_fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in all_fields.items() if isinstance(value, CarrierSettings)}


class PipelineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole pipeline file."""

    name: Name
    stages: dict[Name, AnySettings]
    session: SessionSettings
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()
    recording: RecordingSettings | None = None
    webrtc: WebRtcSettings = WebRtcSettings()
    telephony: TelephonySettings = TelephonySettings()

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
