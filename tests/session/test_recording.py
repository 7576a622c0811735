"""The recording of a call on a real disk: what it holds, who may read it, and what ends it without harm."""

import json
import logging
import os
import stat
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.session.recording import FLUSH_S, MOST_WAITING, Recorder

RATE_HZ = 8_000
SESSION = "c0ffee"
LONGEST_S = 60.0
PATIENCE_S = 20.0


@pytest.fixture
def only_its_modes() -> Iterator[None]:
    """No umask that would take rights away by itself."""
    before = os.umask(0)
    yield
    os.umask(before)


def recorder(folder: Path, longest_s: float = LONGEST_S) -> Recorder:
    return Recorder(folder, SESSION, RATE_HZ, longest_s=longest_s)


def voices(seconds: float, seed: int = 0) -> tuple[Samples, Samples]:
    """What both say, as exact in 16 bits."""
    drawn = np.random.default_rng(seed).uniform(-1, 0.99, (2, int(seconds * RATE_HZ))).astype(np.float32)
    caller, agent = (to_samples(to_pcm(row)) for row in drawn)
    return caller, agent


def end(recording: Recorder) -> None:
    recording.close()
    assert recording.join(PATIENCE_S)


def tracks(folder: Path) -> tuple[Samples, Samples]:
    """Left and right of the file."""
    with wave.open(str(folder / f"{SESSION}.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, RATE_HZ)
        both = to_samples(file.readframes(file.getnframes())).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def events(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / f"{SESSION}.json").read_text()))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_caller_is_on_the_left_and_the_agent_on_the_right_in_pieces_of_any_size(tmp_path: Path) -> None:
    caller, agent = voices(12.0)
    recording = recorder(tmp_path)
    for start, stop in ((0, 1), (1, 1), (1, 160), (160, 50_000), (50_000, 96_000)):
        recording.push(caller[start:stop], agent[start:stop])
    end(recording)
    left, right = tracks(tmp_path)
    np.testing.assert_array_equal(left, caller)
    np.testing.assert_array_equal(right, agent)


def test_events_are_kept_in_order_with_their_seconds_and_fields_across_flushes(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    recording.event(0.0, "speech_started")
    for number in range(3):
        recording.push(*voices(FLUSH_S))
        recording.event(FLUSH_S * (number + 1), "reply", text="naïve “\ud800”", number=number, folder=Path("a"))
    end(recording)
    fields = {"name": "reply", "text": "naïve “\ud800”", "folder": "a"}
    assert events(tmp_path) == [
        {"at_s": 0.0, "name": "speech_started"},
        *({"at_s": FLUSH_S * (number + 1), "number": number, **fields} for number in range(3)),
    ]


def test_a_recording_of_nothing_is_two_whole_files(tmp_path: Path) -> None:
    end(recorder(tmp_path))
    assert tracks(tmp_path)[0].size == 0
    assert events(tmp_path) == []


@pytest.mark.usefixtures("only_its_modes")
def test_the_folder_and_both_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    end(recorder(folder))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"calls": 0o700, f"{SESSION}.wav": 0o600, f"{SESSION}.json": 0o600}


@pytest.mark.usefixtures("only_its_modes")
def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    end(recorder(tmp_path))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


@pytest.mark.parametrize("session", ["", "../ab", "AB", "ab\n", "a/b", "\u0661"])
def test_a_session_that_is_not_hexadecimal_is_refused(session: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected hexadecimal"):
        Recorder(tmp_path, session, longest_s=1.0)
    assert list(tmp_path.iterdir()) == []


def test_voices_of_different_lengths_are_refused_and_the_recording_goes_on(tmp_path: Path) -> None:
    caller, agent = voices(1.0)
    recording = recorder(tmp_path)
    with pytest.raises(ValueError, match="expected the same"):
        recording.push(caller, agent[1:])
    recording.push(caller, agent)
    end(recording)
    np.testing.assert_array_equal(tracks(tmp_path)[1], agent)


def test_a_recording_ends_at_its_longest_to_the_sample(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caller, agent = voices(3.0)
    recording = recorder(tmp_path, longest_s=1.25)
    for start in range(0, caller.size, RATE_HZ):
        recording.push(caller[start : start + RATE_HZ], agent[start : start + RATE_HZ])
    recording.event(3.0, "late")
    assert recording.join(PATIENCE_S)  # without close
    np.testing.assert_array_equal(tracks(tmp_path)[0], caller[: RATE_HZ * 5 // 4])
    assert events(tmp_path) == []
    assert warnings(caplog) == []


def test_what_comes_after_the_close_is_not_recorded(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    end(recording)
    recording.push(*voices(1.0))
    recording.event(1.0, "late")
    end(recording)
    assert tracks(tmp_path)[0].size == 0
    assert events(tmp_path) == []


def test_a_folder_that_cannot_be_made_ends_the_recording_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    recording = recorder(tmp_path / "file" / "calls")
    assert recording.join(PATIENCE_S)
    for _ in range(2 * MOST_WAITING):
        recording.push(*voices(0.02))
    end(recording)
    assert len(warnings(caplog)) == 1
    assert SESSION in warnings(caplog)[0]


def test_a_recording_that_exists_is_not_written_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / f"{SESSION}.wav").write_text("earlier")
    recording = recorder(tmp_path)
    assert recording.join(PATIENCE_S)
    assert (tmp_path / f"{SESSION}.wav").read_text() == "earlier"
    assert len(warnings(caplog)) == 1


def overrun(folder: Path) -> Recorder:
    """A recording whose queue is full because its writer gets no turn."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1_000)  # the writer waits from its first call to the system on
    try:
        recording = recorder(folder)
        for number in range(2 * MOST_WAITING):
            recording.event(number, "tick")
    finally:
        sys.setswitchinterval(interval_s)
    return recording


def test_a_disk_that_fails_behind_a_full_queue_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert overrun(tmp_path / "file").join(PATIENCE_S)
    assert len(warnings(caplog)) == 1


def test_a_full_queue_ends_the_recording_with_one_warning_and_keeps_what_it_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert overrun(tmp_path).join(PATIENCE_S)  # without close
    kept = events(tmp_path)
    assert MOST_WAITING <= len(kept) < 2 * MOST_WAITING
    assert [event["at_s"] for event in kept] == list(range(len(kept)))
    assert len(warnings(caplog)) == 1


# In a process of its own: a file may become so large, then the disk counts as full; or it is killed

CHILD = """
import logging, resource, sys
from pathlib import Path
from tests.session.test_recording import recorder, voices
logging.basicConfig(format="%(levelname)s %(message)s")
most_bytes, seconds = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
recording = recorder(Path(sys.argv[1]))
for second in range(seconds):
    recording.event(second, "tick")
    recording.push(*voices(1.0, second))
"""
FULL = "assert recording.join(20), 'the writer hangs'\nrecording.push(*voices(1.0))\nrecording.close()\n"
KILLED = "sys.stdin.read()\n"


def child(then: str, folder: Path, most_bytes: int, seconds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + then, str(folder), str(most_bytes), str(seconds)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_holds_the_first(seconds: int, folder: Path) -> None:
    caller, agent = (
        np.concatenate(rows) for rows in zip(*(voices(1.0, second) for second in range(seconds)), strict=True)
    )
    left, right = tracks(folder)
    np.testing.assert_array_equal(left, caller)
    np.testing.assert_array_equal(right, agent)
    assert [event["at_s"] for event in events(folder)][:seconds] == list(range(seconds))


def test_a_full_disk_ends_the_recording_with_one_warning_and_a_file_that_can_be_read(tmp_path: Path) -> None:
    with child(FULL, tmp_path, most_bytes=13 * RATE_HZ * 4, seconds=20) as process:
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert told.count("WARNING") == len(told.splitlines()) == 1
    assert_holds_the_first(2 * FLUSH_S, tmp_path)


def test_of_a_process_that_is_killed_the_files_can_be_read_up_to_the_last_flush(tmp_path: Path) -> None:
    with child(KILLED, tmp_path, most_bytes=2**30, seconds=12) as process:
        wait_until_flushed(tmp_path, 2 * FLUSH_S)
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    assert_holds_the_first(2 * FLUSH_S, tmp_path)


def test_a_recording_that_has_just_begun_can_be_read(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    wait_until_flushed(tmp_path, 0)
    end(recording)


def wait_until_flushed(folder: Path, seconds: int) -> None:
    """Look again and again: the writer wakes nobody."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_flushed(folder, seconds):
        assert time.monotonic() < end_s, f"no {seconds} s of sound can be read"


def is_flushed(folder: Path, seconds: int) -> bool:
    """So much sound can be read, and the events before it."""
    try:
        return tracks(folder)[0].size >= seconds * RATE_HZ and len(events(folder)) >= seconds
    except (FileNotFoundError, EOFError, ValueError):  # it has just begun
        return False
