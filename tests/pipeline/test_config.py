"""The pipeline file: what ships loads, and what could not be served is refused before anything starts."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voice_runtime.errors import ConfigError
from voice_runtime.pipeline.config import CarrierSettings, PipelineConfig, TwilioSettings, load
from voice_runtime.pipeline.registry import GIVES
from voice_runtime.stages.payloads import SpokenClause

SHIPPED = sorted((Path(__file__).parents[2] / "pipelines").glob("*.toml"))
WHOLE = """
name = "p"
[session]
recognise = "asr"
judge_turn = "turn_end"
reply = "thinker"
speak = "speech"
[stages.asr]
kind = "asr.moonshine"
worker = "recognition"
[stages.turn_end]
kind = "turn_end.smart_turn"
worker = "recognition"
[stages.thinker]
kind = "thinker.sglang"
worker = "thinker"
next = "text"
stop_ids = [2]
[stages.text]
kind = "text.clauses"
worker = "voice"
next = "speech"
[stages.speech]
kind = "speech.hibari"
worker = "voice"
"""


def loaded(folder: Path, text: str) -> PipelineConfig:
    (folder / "p.toml").write_text(text)
    return load(folder / "p.toml")


def refusal(folder: Path, old: str, new: str) -> str:
    """The message with which the whole file is refused once `old` is replaced by `new`."""
    assert old in WHOLE
    with pytest.raises(ConfigError) as caught:
        loaded(folder, WHOLE.replace(old, new, 1))
    return str(caught.value)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_pipeline_loads_and_ends_in_speech(path: Path) -> None:
    config = load(path)
    assert config.name == path.stem
    last = config.stages[config.chain(config.session.reply)[-1]]
    assert GIVES[type(last)] is SpokenClause


def test_there_is_a_shipped_pipeline() -> None:
    assert SHIPPED


def test_the_graph_is_that_of_the_file(tmp_path: Path) -> None:
    config = loaded(tmp_path, WHOLE)
    assert config.chain("thinker") == ("thinker", "text", "speech")
    assert config.chain("asr") == ("asr",)
    workers = {"recognition": ["asr", "turn_end"], "thinker": ["thinker"], "voice": ["text", "speech"]}
    assert config.workers() == workers


def test_the_judge_of_turns_may_be_left_out(tmp_path: Path) -> None:
    assert loaded(tmp_path, WHOLE.replace('judge_turn = "turn_end"', "")).session.judge_turn is None


def test_without_a_voice_of_its_own_the_agent_has_nothing_to_say(tmp_path: Path) -> None:
    silent = WHOLE.replace('speak = "speech"', "")
    assert loaded(tmp_path, silent).session.speak is None
    for setting in ('greeting = "Hello."', "idle_s = 10.0"):
        with pytest.raises(ConfigError, match="speak is missing, expected the stage that says the greeting"):
            loaded(tmp_path, silent.replace("[session]", f"[session]\n{setting}"))


def test_the_largest_settings_of_a_session_load(tmp_path: Path) -> None:
    lines = [
        f"idle_prompts = {['x'] * 20}",
        f"turn.backchannels = {['x'] * 100}",
        "turn.pre_roll_ms = 900",
        "turn.longest_turn_s = 29",
        "turn.interrupt_ms = 20_000",
    ]
    session = loaded(tmp_path, WHOLE.replace("[session]", "\n".join(["[session]", *lines]))).session
    assert (len(session.idle_prompts), len(session.turn.backchannels)) == (20, 100)
    assert (session.turn.pre_roll_ms, session.turn.longest_turn_s, session.turn.interrupt_ms) == (900, 29, 20_000)


def test_what_the_agent_says_is_cut_as_the_text_stage_cuts(tmp_path: Path) -> None:
    own = loaded(tmp_path, WHOLE.replace('kind = "text.clauses"', 'kind = "text.clauses"\nfirst_words = 3'))
    assert own.text_settings.first_words == 3


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('name = "p"', 'name = "p"\nnmae = "q"', "unknown field `nmae`"),
        ('recognise = "asr"', 'recognise = "asr"\nlead = 1', "unknown field `lead` - at `$.session`"),
        ('worker = "thinker"', 'worker = "thinker"\ntop_q = 1', "unknown field `top_q`"),
        ("[stages.asr]", "[session.turn]\nonset = 1\n[stages.asr]", "unknown field `onset` - at `$.session.turn`"),
        ('kind = "asr.moonshine"', 'kind = "asr.whisper"', "Invalid value 'asr.whisper'"),
        ('kind = "asr.moonshine"', "", "missing required field `kind`"),
        ('worker = "voice"\nnext = "speech"', "", "missing required field `worker`"),
        ("stop_ids = [2]", "", "missing required field `stop_ids`"),
        ('recognise = "asr"', "", "missing required field `recognise`"),
        ('name = "p"', "name = 1", "Expected `str`, got `int` - at `$.name`"),
        ("stop_ids = [2]", 'stop_ids = ["2"]', "Expected `int`, got `str`"),
        ("stop_ids = [2]", "stop_ids = [2]\nmax_new_tokens = 1.5", "Expected `int`, got `float`"),
        ("stop_ids = [2]", "stop_ids = [2]\nmax_running = true", "Expected `int`, got `bool`"),
        ('recognise = "asr"', 'recognise = "asr"\nlead_ms = 39', "Expected `int` >= 40 - at `$.session.lead_ms`"),
        ('recognise = "asr"', 'recognise = "asr"\nhistory_turns = -1', "Expected `int` >= 0"),
        ('recognise = "asr"', 'recognise = "asr"\nlongest_reply_s = nan', "Expected `float` > 0"),
        ('recognise = "asr"', 'recognise = "asr"\nlongest_reply_s = inf', "Expected `float` <= "),
        ("[stages.asr]", "[session.turn]\nask_silence_ms = 0\n[stages.asr]", "Expected `int` >= 1"),
        ("[stages.asr]", "[session.turn]\nvoice_threshold = 1.1\n[stages.asr]", "Expected `float` <= 1"),
        ("[stages.asr]", "[session.turn]\nquiet_threshold = nan\n[stages.asr]", "Expected `float` >= 0"),
        (
            "[stages.asr]",
            "[session.turn]\nlikely_end_silence_ms = 900\n[stages.asr]",
            "likely_end_silence_ms is 900, expected at most 800",
        ),
        (
            "[stages.asr]",
            "[session.turn]\ndraft_silence_ms = 400\n[stages.asr]",
            "draft_silence_ms is 400, expected at most 352",
        ),
        ("[stages.asr]", "[session.turn]\ninterrupt_words = 0\n[stages.asr]", "Expected `int` >= 1"),
        ("[stages.asr]", '[session.turn]\nbackchannels = [""]\n[stages.asr]', "length >= 1"),
        ("[stages.asr]", f"[session.turn]\nbackchannels = {['x'] * 101}\n[stages.asr]", "length <= 100"),
        ("[stages.asr]", "[session.turn]\npre_roll_ms = 901\n[stages.asr]", "Expected `int` <= 900"),
        ("[stages.asr]", "[session.turn]\nlongest_turn_s = 29.1\n[stages.asr]", "Expected `float` <= 29"),
        ("[stages.asr]", "[session.turn]\nend_silence_ms = 60_001\n[stages.asr]", "Expected `int` <= 60000"),
        ('speak = "speech"', f'speak = "speech"\nidle_prompts = {["x"] * 21}', "length <= 20"),
        ('speak = "speech"', 'speak = "speech"\nidle_s = inf', "Expected `float` <= "),
        ('speak = "speech"', 'speak = "speech"\nresume_s = -1.0', "Expected `float` >= 0"),
        ('speak = "speech"', 'speak = "speech"\ngoodbye = ""', "length >= 1"),
        ("[stages.asr]", "[stages.asr]\nbatch = 0", "Expected `int` >= 1 - at `$.stages[...].batch`"),
        ("[stages.asr]", "[stages.asr]\nmax_hold_ms = nan", "Expected `float` >= 0"),
        ("[stages.asr]", "[limits]\nsessions = 0\n[stages.asr]", "Expected `int` >= 1"),
        ("[stages.asr]", "[limits]\nsessions_per_client = 0\n[stages.asr]", "Expected `int` >= 1"),
        ("[stages.asr]", "[limits]\nattempts_per_minute = 1001\n[stages.asr]", "Expected `int` <= 1000"),
        ("[stages.asr]", '[access]\norigin = "https://a.org"\n[stages.asr]', "unknown field `origin`"),
        ('name = "p"', "name = ", "Invalid value (at line 2"),
        ('name = "p"', 'name = "p"\nname = "q"', "Cannot overwrite a value"),
    ],
)
def test_a_key_that_is_unknown_missing_or_of_another_kind_is_named(
    tmp_path: Path, old: str, new: str, found: str
) -> None:
    message = refusal(tmp_path, old, new)
    assert found in message
    assert str(tmp_path / "p.toml") in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'recognise = "asr"',
            'recognise = "ear"',
            "session.recognise is 'ear', expected one of ['asr', 'speech', 'text', 'thinker', 'turn_end']",
        ),
        (
            'reply = "thinker"',
            'reply = "mind"',
            "session.reply is 'mind', expected one of ['asr', 'speech', 'text', 'thinker', 'turn_end']",
        ),
        (
            'recognise = "asr"',
            'recognise = "thinker"',
            "session.recognise is thinker, which takes Prompt, expected Utterance",
        ),
        ('reply = "thinker"', 'reply = "text"', "session.reply is text, which takes TokenIds, expected Prompt"),
        (
            'judge_turn = "turn_end"',
            'judge_turn = "asr"',
            "session.judge_turn is asr, which takes Utterance, expected Heard",
        ),
        ('speak = "speech"', 'speak = "text"', "session.speak is text, which takes TokenIds, expected Clause"),
        (
            'speak = "speech"',
            'speak = "mouth"',
            "session.speak is 'mouth', expected one of ['asr', 'speech', 'text', 'thinker', 'turn_end']",
        ),
        (
            'next = "text"',
            'next = "txt"',
            "stage thinker has next = 'txt', expected one of ['asr', 'speech', 'text', 'thinker', 'turn_end']",
        ),
        ('next = "text"', 'next = "speech"', "stage thinker gives TokenIds, but its next, speech, takes Clause"),
        ('next = "speech"', 'next = "text"', "stage text gives Clause, but its next, text, takes TokenIds"),
        ('next = "speech"', 'next = "thinker"', "stage text gives Clause, but its next, thinker, takes Prompt"),
        ('next = "speech"', "", "the reply ends at stage text, expected a stage that gives SpokenClause"),
        ('next = "text"', "", "the reply ends at stage thinker, expected a stage that gives SpokenClause"),
        (
            'worker = "thinker"',
            'worker = "voice"',
            "worker voice runs thinker, text, speech, expected thinker alone in its process",
        ),
    ],
)
def test_a_graph_that_does_not_fit_is_refused_with_found_and_expected(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert refusal(tmp_path, old, new) == message


ORIGINS = (
    "https://app.example.org",
    "http://localhost:3000",
    "https://[2001:db8::1]:8443",
    "https://xn--bcher-kva.example",
)


def test_origins_are_taken_as_browsers_write_them(tmp_path: Path) -> None:
    assert loaded(tmp_path, WHOLE).access.origins == ()
    assert loaded(tmp_path, f"{WHOLE}\n[access]\norigins = {list(ORIGINS)}").access.origins == ORIGINS


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "",
            "*",
            "null",
            "app.example.org",
            "//app.example.org",
            "ftp://app.example.org",
            "https://",
            "https://:8443",
        ),
        *(
            "https://app.example.org/",
            "https://app.example.org/page",
            "https://app.example.org?a",
            "https://*.example.org",
        ),
        *(
            "https://user@app.example.org",
            "https://app.example.org:",
            "https://app.example.org:port",
            "https://bücher.de",
        ),
        *(
            "https://App.example.org",
            "HTTPS://app.example.org",
            "https://app.example.org:443",
            "http://app.example.org:80",
        ),
        *("https://app.example.org\\n", " https://app.example.org"),
    ],
)
def test_what_no_browser_would_send_as_an_origin_is_refused_with_found_and_expected(
    tmp_path: Path, origin: str
) -> None:
    with pytest.raises(ConfigError, match=r"origins has .*, expected scheme://host\[:port\] in lower case"):
        loaded(tmp_path, f'{WHOLE}\n[access]\norigins = ["{origin}"]')


def test_telephony_is_off_until_a_carrier_has_its_table(tmp_path: Path) -> None:
    assert loaded(tmp_path, WHOLE).telephony.carriers() == {}
    told = '[telephony]\ncalls = 2\npublic_url = "https://voice.example.org:8443/v"\n[telephony.twilio]\n'
    telephony = loaded(tmp_path, f'{WHOLE}\n{told}auth_token_env = "TWILIO_AUTH_TOKEN"\n[telephony.jambonz]').telephony
    twilio = TwilioSettings(auth_token_env="TWILIO_AUTH_TOKEN")
    assert (telephony.calls, telephony.carriers()) == (2, {"twilio": twilio, "jambonz": CarrierSettings()})


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("[telephony.twilio]", "public_url is missing, expected what Twilio or Plivo calls us by"),
        ("[telephony.plivo]", "public_url is missing"),
        ('[telephony.telnyx]\nauth_token_env = "A"', "unknown field `auth_token_env`"),
        ('[telephony.exotel]\ntoken = "s3cret"', "unknown field `token`"),
        ('[telephony.exotel]\ntoken_env = "not a name"', "matching regex"),
        ("[telephony.acme]", "unknown field `acme`"),
        ("[telephony]\ncalls = 0", "Expected `int` >= 1"),
        *(
            (f'[telephony]\npublic_url = "{url}"', "expected https://host[:port][/path]")
            for url in ("", "voice.example.org", "wss://a.org", "https://a.org/", "https://a.org?x", "https://u@a.org")
        ),
    ],
)
def test_telephony_that_does_not_fit_is_refused_by_name(tmp_path: Path, table: str, found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, f"{WHOLE}\n{table}")
    assert found in str(refused.value)


def test_a_file_that_is_missing_or_not_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing.toml", tmp_path, tmp_path / "bytes.toml"):
        with pytest.raises(ConfigError, match=str(path)):
            load(path)


STAGES = ("asr", "turn_end", "thinker", "text", "speech")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nexts=st.lists(st.none() | st.sampled_from(STAGES), min_size=5, max_size=5))
def test_a_file_whose_stages_form_a_loop_never_loads(tmp_path: Path, nexts: list[str | None]) -> None:
    text = "\n".join(line for line in WHOLE.splitlines() if not line.startswith("next"))
    for stage, following in zip(STAGES, nexts, strict=True):
        if following is not None:
            text = text.replace(f"[stages.{stage}]", f'[stages.{stage}]\nnext = "{following}"')
    fits = [None, None, "text", "speech", None]
    if nexts == fits:
        assert loaded(tmp_path, text).chain("thinker") == ("thinker", "text", "speech")
    else:
        with pytest.raises(ConfigError):
            loaded(tmp_path, text)


def test_no_chain_of_a_loaded_file_is_longer_than_its_stages(tmp_path: Path) -> None:
    config = loaded(tmp_path, WHOLE)
    assert all(len(config.chain(stage)) <= len(config.stages) for stage in config.stages)
