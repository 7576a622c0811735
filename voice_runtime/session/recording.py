"""A call kept on disk when its owner asks for it: both voices and what happened when. Knows no session and no socket.

Whoever pushes never waits for the disk: a thread of the recording's own writes. What goes wrong ends the recording and
nothing else.
"""

import json
import logging
import os
import queue
import re
import threading
import wave
from pathlib import Path
from typing import BinaryIO

import numpy as np

from voice_runtime.audio.pcm import Samples, to_pcm

FRAME_BYTES = 4  # a 16-bit sample of each voice
FLUSH_S = 5  # of sound: what a process that is killed may lose
MOST_WAITING = 1_000  # pieces and events; 20 s of pieces of 20 ms
MOST_WAV_BYTES = 2**32 - 64  # its sizes have 32 bits

logger = logging.getLogger(__name__)


class Recorder:
    """Records one session into `folder`: SESSION.wav (left the caller, right the agent) and SESSION.json (events).

    push, event and close are for one thread; they are quick, and once the recording has ended they do nothing.

    folder: made if it is missing, for its owner alone, as the files are; files that exist are not touched.
    session: hexadecimal. longest_s: the recording ends there.

    Raises:
        ValueError: a session id that could name a file elsewhere.
    """

    def __init__(self, folder: Path, session: str, rate_hz: int = 16_000, *, longest_s: float) -> None:
        if re.fullmatch("[0-9a-f]+", session) is None:
            raise ValueError(f"session is {session!r}, expected hexadecimal digits")
        self._folder = folder
        self._session = session
        self._rate_hz = rate_hz
        self._frames_left = int(min(longest_s * rate_hz, MOST_WAV_BYTES // FRAME_BYTES))
        self._queue: queue.SimpleQueue[bytes | str | None] = queue.SimpleQueue()  # bounded by _put
        self._is_over = False  # nothing more is taken
        self._is_broken = threading.Lock()  # held from the first failure on
        self._writer = threading.Thread(target=self._write, name=f"recording-{session}", daemon=True)
        self._writer.start()

    def push(self, caller: Samples, agent: Samples) -> None:
        """What both said next: float32, shape (T,), at `rate_hz`.

        Raises:
            ValueError: their lengths differ.
        """
        if caller.shape != agent.shape:
            raise ValueError(f"the caller has shape {caller.shape} and the agent {agent.shape}, expected the same")
        if self._is_over:
            return
        both = np.stack([caller, agent], axis=1)[: self._frames_left].ravel()
        self._put(to_pcm(both))
        self._frames_left -= both.size // 2
        if self._frames_left <= 0:
            logger.info("the recording of session %s is as long as it may be and ends here", self._session)
            self.close()

    def event(self, at_s: float, name: str, **fields: object) -> None:
        """Something happened. at_s: seconds from the start. fields: as JSON, what JSON lacks as its `str`."""
        if not self._is_over:
            self._put(json.dumps({"at_s": round(at_s, 4), "name": name, **fields}, default=str))

    def close(self) -> None:
        """Take nothing more; the thread writes what it has and ends by itself."""
        if not self._is_over:
            self._is_over = True
            self._queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread after `close`; whether it has ended."""
        self._writer.join(timeout_s)
        return not self._writer.is_alive()

    def _put(self, item: bytes | str) -> None:
        if self._queue.qsize() < MOST_WAITING:
            self._queue.put(item)
        else:
            self._give_up(f"the disk is {MOST_WAITING} pieces behind")

    def _give_up(self, reason: object) -> None:
        """Either thread."""
        if self._is_broken.acquire(blocking=False):
            logger.warning("the recording of session %s ends early: %s", self._session, reason)
        self.close()

    def _write(self) -> None:
        """The thread."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / self._session
            with (
                _create(path.with_suffix(".wav")) as sound,
                _create(path.with_suffix(".json")) as notes,
                wave.open(sound, "wb") as track,
            ):
                track.setnchannels(2)
                track.setsampwidth(2)
                track.setframerate(self._rate_hz)
                self._drain(track, sound, _Notes(notes))
        except OSError as error:
            self._give_up(error)

    def _drain(self, track: wave.Wave_write, sound: BinaryIO, notes: "_Notes") -> None:
        """Write until the end, so that both files are whole every FLUSH_S seconds of sound."""
        flushed_frames = -FLUSH_S * self._rate_hz  # at once: empty files are whole, too
        item: bytes | str | None = b""
        while item is not None:
            if isinstance(item, str):
                notes.add(item)
            else:
                track.writeframesraw(item)
            if track.tell() - flushed_frames >= FLUSH_S * self._rate_hz:
                track.writeframes(b"")  # writes the length into the header
                sound.flush()
                notes.flush()
                flushed_frames = track.tell()
            item = self._queue.get()
        notes.flush()


class _Notes:
    """A JSON array in a file; whole after each flush."""

    END = b"\n]\n"

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._file.write(b"[" + self.END)
        self._separator = b"\n"
        self._waiting: list[bytes] = []

    def add(self, item: str) -> None:
        self._waiting.append(item.encode())

    def flush(self) -> None:
        if self._waiting:
            self._file.seek(-len(self.END), os.SEEK_END)
            self._file.write(self._separator + b",\n".join(self._waiting) + self.END)
            self._separator = b",\n"
            self._waiting.clear()
        self._file.flush()


def _create(path: Path) -> BinaryIO:
    """A new file for its owner alone. Raises OSError, also when there is one."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
