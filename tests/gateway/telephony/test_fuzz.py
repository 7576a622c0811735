"""Whatever a carrier sends, its codec brings events, nothing or a refusal; and it holds on to little."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.telephony import invariants, transcripts
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.audiosocket import AudioSocketCodec

NAMES = sorted(transcripts.EVERY_CODEC)
RUNS_PER_CODEC = 112_000  # more than 1,000,000 over the nine codecs
SOAK_S = 3_600

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def changed_json(draw: st.DrawFn, text: str) -> str:
    """A message with one of its values, at any depth, gone or another one."""
    message = json.loads(text)
    at: Any = message
    while isinstance(at, dict) and at:
        key = draw(st.sampled_from(sorted(at)))
        if not isinstance(at[key], dict) or draw(st.booleans()):
            at[key] = draw(json_values)
            if draw(st.booleans()):
                del at[key]
            break
        at = at[key]
    return json.dumps(message)


def changed(message: base.Wire) -> st.SearchStrategy[base.Wire]:
    """A message as it is, cut short, or with a value changed."""
    cut = st.integers(0, len(message)).map(lambda end: message[:end])
    if isinstance(message, str) and message.startswith("{"):
        return st.just(message) | cut | changed_json(message)
    return st.just(message) | cut


def conversations(name: str) -> st.SearchStrategy[list[base.Wire]]:
    """Messages that the carrier does send, some of them damaged, in any order, among others that it does not."""
    known = [message for heard in transcripts.messages(name) for message in heard]
    valid = st.sampled_from(known)
    return st.lists(valid | valid.flatmap(changed) | st.text(max_size=50) | st.binary(max_size=50), max_size=12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_no_conversation_brings_anything_but_a_call_s_events_or_refusals(name: str, data: st.DataObject) -> None:
    invariants.feed(transcripts.EVERY_CODEC[name](), data.draw(conversations(name)))


@settings(max_examples=40)
@given(pieces=st.lists(st.binary(max_size=400), max_size=20))
def test_audiosocket_keeps_no_more_than_one_frame_of_any_bytes(pieces: list[bytes]) -> None:
    codec = AudioSocketCodec()
    for piece in pieces:
        invariants.feed(codec, [piece])
        assert invariants.retained_bytes(codec) <= 3 + 0xFFFF + 500


def test_audiosocket_keeps_no_more_than_one_frame_of_an_endless_one() -> None:
    codec = AudioSocketCodec()
    for _ in range(100):
        invariants.feed(codec, [b"\x42\xff\xff" + bytes(5_000)])
        assert invariants.retained_bytes(codec) <= 3 + 0xFFFF + 500


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_a_coverage_guided_fuzzer_finds_no_input_that_breaks_a_codec(name: str, tmp_path: Path) -> None:
    target = [sys.executable, "-m", "tests.gateway.telephony.fuzz_target", name, str(tmp_path)]
    limits = [f"-runs={RUNS_PER_CODEC}", "-max_len=1000", "-rss_limit_mb=1024", f"-artifact_prefix={tmp_path}/"]
    fuzzer = subprocess.run([*target, *limits], capture_output=True, text=True, check=False, timeout=SOAK_S)
    assert fuzzer.returncode == 0, fuzzer.stderr[-3_000:]
    done = re.search(r"Done (\d+) runs", fuzzer.stderr)
    assert done is not None
    assert int(done[1]) >= RUNS_PER_CODEC
    assert len(list(tmp_path.iterdir())) > len(transcripts.messages(name))
