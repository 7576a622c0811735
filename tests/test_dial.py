"""`voice-runtime dial`: a recording in a call, what the caller heard in a file, and what happened in lines."""

import asyncio
import tomllib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.exchange import SESSION, VOICE_HZ, clause, exchange, speech
from voice_runtime import dial
from voice_runtime.audio import wav
from voice_runtime.audio.pcm import to_pcm
from voice_runtime.cli import shared
from voice_runtime.dial import Plan, with_telephony
from voice_runtime.errors import ConfigError, VoiceRuntimeError
from voice_runtime.pipeline.config import AudioSocketSettings, load

CPU = shared("pipelines") / "cpu.toml"


def recorded(folder: Path) -> Path:
    wav.write(folder / "in.wav", to_pcm(speech(0.3) * 2), VOICE_HZ)
    return folder / "in.wav"


async def called(plan: Plan, answer_s: float = 0.6) -> tuple[list[str], list[str]]:
    """The faults and the lines of a call that is answered by the test, to its end by the agent."""
    lines: list[str] = []
    settings = msgspec.structs.replace(SESSION, idle_s=0.1, idle_prompts=(), goodbye="Goodbye.")
    async with exchange(settings) as there, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(dial.dial(replace(plan, url=there.url(plan.protocol)), CPU, lines.append))
        asked = await there.stages.wait_asked("thinker")
        asked.bring(clause("yes it is", speech(answer_s, 2)))
        asked.finish()
        goodbye = await there.stages.wait_asked("speech")
        goodbye.bring(clause("Goodbye.", speech(0.2, 3)))
        goodbye.finish()
        faults = await calling
    return faults, lines


async def test_a_call_is_told_in_lines_and_what_the_caller_heard_is_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    faults, lines = await called(Plan(recorded(tmp_path), keys="5#", out=out))
    assert faults == []
    told = [" ".join(line.split()[2:]) for line in lines[1:-1]]
    for expected in ("key 5", "key #", "speaks", "mark m1", "played m1", "ended by the agent"):
        assert expected in told
    assert told.index("mark m1") < told.index("played m1") < told.index("ended by the agent")
    samples, rate_hz = wav.read(out)
    assert rate_hz == 8_000
    assert np.count_nonzero(np.abs(samples) > 0.001) / rate_hz == pytest.approx(0.8, abs=0.1)


async def test_mixed_has_the_caller_in_it_too(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    await called(Plan(recorded(tmp_path), "vonage", keys="5#", out=out, is_mixed=True))
    samples, rate_hz = wav.read(out)
    assert rate_hz == 16_000
    assert np.count_nonzero(np.abs(samples) > 0.001) / rate_hz == pytest.approx(1.1, abs=0.15)


async def test_who_cannot_be_called_is_refused_by_name(tmp_path: Path) -> None:
    wave = recorded(tmp_path)
    with pytest.raises(ConfigError, match="protocol is 'fax', expected one of twilio"):
        await dial.dial(Plan(wave, "fax"), CPU, print)
    with pytest.raises(ConfigError, match="expected a folder"):
        await dial.dial(Plan(wave, out=tmp_path / "no" / "out.wav"), CPU, print)
    with pytest.raises(VoiceRuntimeError, match="no answer from the server"):
        await dial.dial(Plan(wave, url="ws://127.0.0.1:9/telephony/twilio"), CPU, print)


@pytest.mark.parametrize("door", ["twilio", "plivo", "asterisk", "audiosocket"])
def test_a_pipeline_file_gets_telephony_for_the_carrier_and_loses_its_own(tmp_path: Path, door: str) -> None:
    own = tmp_path / "own.toml"
    text = CPU.read_text() + '\n[telephony]\npublic_url = "https://a.b"\ninstructions = "Be \\"kind\\" ü."\n'
    own.write_text(text + '[telephony.twilio]\nauth_token_env = "T"\n\n[webrtc]\nice_servers = []\n')
    made = tmp_path / "made.toml"
    made.write_text(with_telephony(own, door, 4_321))
    telephony = load(made).telephony
    assert list(telephony.carriers()) == ([] if door == "audiosocket" else [door])
    assert telephony.audiosocket == (AudioSocketSettings(port=4_321) if door == "audiosocket" else None)
    assert telephony.instructions == 'Be "kind" ü.'
    assert tomllib.loads(made.read_text())["webrtc"] == {"ice_servers": []}
    assert load(made).stages == load(CPU).stages


def test_a_pipeline_file_whose_telephony_cannot_be_replaced_is_refused(tmp_path: Path) -> None:
    for text in ("telephony.calls = 3\n" + CPU.read_text(), "[session"):
        (tmp_path / "own.toml").write_text(text)
        with pytest.raises(ConfigError, match="give its URL"):
            with_telephony(tmp_path / "own.toml", "twilio", 1)
