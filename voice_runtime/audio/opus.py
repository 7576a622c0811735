"""Opus for speech: mono, 20 ms frames, in-band forward error correction, concealment of what was lost.

Source: RFC 6716 (the codec), RFC 7587 (its RTP payload). Through the libopus that PyAV's wheel brings: PyAV itself can
neither decode the error correction nor conceal.
"""

import ctypes
from pathlib import Path

import av
import numpy as np

from voice_runtime.audio.pcm import Samples
from voice_runtime.errors import MediaError

FRAME_MS = 20
MOST_FRAME_MS = 120  # of a packet, RFC 6716 section 2.1.4
MOST_PACKET_BYTES = 1_275
# opus_defines.h of libopus 1.6.1.
_APPLICATION_VOIP = 2048
_SET_BITRATE = 4002
_SET_COMPLEXITY = 4010
_SET_INBAND_FEC = 4012
_SET_PACKET_LOSS_PERCENT = 4014
_SET_SIGNAL = 4024
_SIGNAL_VOICE = 3001


def _library() -> ctypes.CDLL:
    found = sorted(Path(av.__file__).parent.parent.joinpath("av.libs").glob("libopus-*.so*"))
    if not found:
        raise MediaError("no libopus beside PyAV, expected av.libs/libopus-*.so as in PyAV's wheels for Linux")
    library = ctypes.CDLL(str(found[0]))
    library.opus_encoder_create.restype = ctypes.c_void_p
    library.opus_decoder_create.restype = ctypes.c_void_p
    library.opus_strerror.restype = ctypes.c_char_p
    return library


_opus = _library()
_FloatPointer = ctypes.POINTER(ctypes.c_float)


class Encoder:
    """rate_hz: of the sound, 8, 12, 16, 24 or 48 kHz. bitrate: bits a second.

    loss_percent: packet loss to be prepared for; with 0 no error correction is sent.
    """

    def __init__(self, rate_hz: int, bitrate: int = 32_000, loss_percent: int = 10) -> None:
        self._samples = rate_hz * FRAME_MS // 1000
        error = ctypes.c_int()
        self._state = ctypes.c_void_p(_opus.opus_encoder_create(rate_hz, 1, _APPLICATION_VOIP, ctypes.byref(error)))
        _check(error.value)
        for request, value in (
            (_SET_BITRATE, bitrate),
            (_SET_COMPLEXITY, 5),  # half the time of the highest, and for speech nearly as good
            (_SET_SIGNAL, _SIGNAL_VOICE),
            (_SET_INBAND_FEC, int(loss_percent > 0)),
            (_SET_PACKET_LOSS_PERCENT, loss_percent),
        ):
            _check(_opus.opus_encoder_ctl(self._state, request, ctypes.c_int(value)))
        self._packet = ctypes.create_string_buffer(MOST_PACKET_BYTES)

    def encode(self, pcm: bytes) -> bytes:
        """One frame of 20 ms, 16-bit mono, to one packet. A shorter one is filled up with silence."""
        pcm = pcm.ljust(2 * self._samples, b"\0")
        size = _opus.opus_encode(self._state, pcm, self._samples, self._packet, MOST_PACKET_BYTES)
        return self._packet.raw[: _check(size)]

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            _opus.opus_encoder_destroy(self._state)


class Decoder:
    """One stream of packets; the packets' own rate and channels do not matter.

    rate_hz: of the sound that comes out, 8, 12, 16, 24 or 48 kHz.
    """

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        error = ctypes.c_int()
        self._state = ctypes.c_void_p(_opus.opus_decoder_create(rate_hz, 1, ctypes.byref(error)))
        _check(error.value)
        self._sound = np.zeros(rate_hz * MOST_FRAME_MS // 1000, np.float32)

    def decode(self, packet: bytes) -> Samples:
        """float32, shape (T,), in [-1, 1].

        Raises:
            MediaError: the packet is empty or not Opus; the stream goes on with the next one.
        """
        _expect_bytes(packet)
        return self._run(packet, self._sound.size, use_fec=False)

    def recover(self, following: bytes, ms: float) -> Samples:
        """The `ms` before the packet `following`, from its error correction where it holds some, else concealed.

        Raises:
            MediaError: as `decode`.
        """
        _expect_bytes(following)
        return self._run(following, self._count(ms), use_fec=True)

    def conceal(self, ms: float) -> Samples:
        """`ms` (a multiple of 2.5) that go on from what was decoded and die away."""
        return self._run(None, self._count(ms), use_fec=False)

    def _count(self, ms: float) -> int:
        return int(min(ms, MOST_FRAME_MS) * self._rate_hz / 1000)

    def _run(self, packet: bytes | None, most: int, *, use_fec: bool) -> Samples:
        out = self._sound.ctypes.data_as(_FloatPointer)
        size = 0 if packet is None else len(packet)
        count = _check(_opus.opus_decode_float(self._state, packet, size, out, most, int(use_fec)))
        return np.clip(self._sound[:count], -1.0, 1.0)

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            _opus.opus_decoder_destroy(self._state)


def duration_ms(packet: bytes) -> float:
    """How much sound a packet holds.

    Raises:
        MediaError: it is empty or not Opus.
    """
    samples = _check(_opus.opus_packet_get_nb_samples(packet, len(packet), 48_000))
    if samples == 0:  # libopus counts no frames where RFC 6716, section 3.2.5, forbids it
        raise MediaError("an Opus packet has 0 frames, expected at least 1")
    return samples / 48


def _expect_bytes(packet: bytes) -> None:
    if not packet:  # libopus would conceal a loss
        raise MediaError("an Opus packet has no bytes, expected at least 1")


def _check(result: int) -> int:
    if result < 0:
        raise MediaError(f"libopus says {_opus.opus_strerror(result).decode()!r}, expected an Opus packet")
    return result
