"""Settings of one session: the pipeline file's, with what its client asked for."""

import pytest

from voice_runtime.errors import PeerError
from voice_runtime.pipeline.config import SessionSettings, TurnSettings
from voice_runtime.session.settings import configured

FILE = SessionSettings(
    recognise="asr", reply="thinker", speak="speech", greeting="Hello.", turn=TurnSettings(hold_ms=90)
)


def test_what_is_not_named_stays_as_it_was() -> None:
    found = configured(FILE, {"idle_s": 3, "turn": {"end_silence_ms": 900, "backchannels": ["aye"]}})
    assert (found.greeting, found.recognise, found.idle_s) == ("Hello.", "asr", 3.0)
    assert (found.turn.hold_ms, found.turn.end_silence_ms, found.turn.backchannels) == (90, 900, ("aye",))
    assert configured(found, {}) == found


def test_changes_add_up() -> None:
    once = configured(FILE, {"turn": {"end_silence_ms": 900}})
    assert configured(once, {"turn": {"draft": False}}).turn.end_silence_ms == 900
    assert FILE.turn.end_silence_ms == 800


def test_instructions_that_would_fill_the_thinkers_context_are_refused_with_found_and_expected() -> None:
    assert configured(FILE, {"instructions": "a" * 1_500}).instructions == "a" * 1_500
    with pytest.raises(PeerError, match="instructions of 1504 bytes, expected 1500"):
        configured(FILE, {"instructions": "\U0001f9ff" * 376})
