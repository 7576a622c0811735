"""A carrier that takes 200 ms or nothing: what is short waits for what follows, and is filled up only at the end."""

import numpy as np
import pytest

from voice_runtime.gateway.protocols.telephony.base import Abilities, AudioFormat, Clear, Command, Mark, Play
from voice_runtime.gateway.transports.phone_line import LITTLE_MS, QUIET_S, PhoneLine
from voice_runtime.session.events import Played

EXOTEL = AudioFormat("l16", 8_000, least_bytes=3_200, step_bytes=320)
FRAME = 320  # bytes of 20 ms


def line_with(frames: int) -> tuple[PhoneLine, bytes, list[Command]]:
    """A line, the reply so far in so many frames, the last at 100 s, and what went out of it."""
    line = PhoneLine(EXOTEL, Abilities(), bytes)
    line.begin("r1")
    reply = np.arange(frames * FRAME // 2).astype("<i2").tobytes()
    out = [one for at in range(0, len(reply), FRAME) for one in line.frame(reply[at : at + FRAME], 100.0)]
    return line, reply, out


def sound(commands: list[Command]) -> bytes:
    return b"".join(command.data for command in commands if isinstance(command, Play))


def test_what_is_short_waits_while_the_carrier_has_enough_to_play() -> None:
    line, reply, out = line_with(13)
    assert sound(out) == reply[: 10 * FRAME]
    assert line.wait_s(100.0 + QUIET_S, heard_ms=20) == (200 - 20 - LITTLE_MS) / 1_000
    assert line.wait_s(100.0 + QUIET_S, heard_ms=200 - LITTLE_MS) == 0
    assert line.wait_s(100.0, heard_ms=200) == pytest.approx(QUIET_S)


def test_what_follows_fills_a_message_without_silence_in_it() -> None:
    line, reply, out = line_with(13)
    more = bytes(range(160)) * 14
    for at in range(0, len(more), FRAME):
        out += line.frame(more[at : at + FRAME], 100.02)
    assert sound(out) == reply + more


def test_at_the_end_silence_fills_up_and_a_mark_tells_when_all_was_played() -> None:
    line, reply, _ = line_with(13)
    rest = line.quiet()
    assert sound(rest) == reply[10 * FRAME :] + bytes(7 * FRAME)
    assert isinstance(rest[-1], Mark)
    assert not line.is_played
    assert line.reached(rest[-1].name) == Played("r1", 260)
    assert line.is_played
    assert line.wait_s(200.0, heard_ms=0) == float("inf")


def test_after_a_pause_the_same_samples_go_on_with_no_silence_before_what_follows() -> None:
    line, reply, _ = line_with(13)
    assert line.pause() == [Clear()]
    again = line.resume(heard_ms=35, now_s=101.0)
    skipped = 2 * 35 * 8
    assert sound(again) == reply[skipped:][: 10 * FRAME]
    more = bytes(range(160)) * 20
    for at in range(0, len(more), FRAME):
        again += line.frame(more[at : at + FRAME], 101.0)
    assert (reply[skipped:] + more).startswith(sound(again))
    again += line.quiet()
    assert sound(again).rstrip(b"\0") == (reply[skipped:] + more).rstrip(b"\0")
