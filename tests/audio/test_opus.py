"""Opus as it is bound here: speech survives it, a lost frame is recovered, and no bytes do any harm."""

import contextlib
import gc
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from aiortc.codecs.opus import OpusEncoder
from av import AudioFrame
from hypothesis import given
from hypothesis import strategies as st

from tests.support import speech
from voice_runtime.audio import opus
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.errors import MediaError

RATE_HZ = 16_000
FRAME = RATE_HZ * opus.FRAME_MS // 1000
STEREO = 0x04  # in a packet's first byte, RFC 6716 section 3.1
NOT_OPUS = [b"\x0b", b"\xff" * 3, b"\x0b\x3f", b"\x0b\x00", b"\x03\x00", b"\x03\xff" * 20]


@cache
def voice() -> Samples:
    """Four seconds of a person reading, in whole frames."""
    return speech.human_clips()[0].samples[: 200 * FRAME]


def encoded(samples: Samples, rate_hz: int = RATE_HZ, loss_percent: int = 10) -> list[bytes]:
    encoder, size = opus.Encoder(rate_hz, loss_percent=loss_percent), rate_hz // 50
    return [encoder.encode(to_pcm(samples[at : at + size])) for at in range(0, samples.size, size)]


@cache
def packets(loss_percent: int = 10) -> tuple[bytes, ...]:
    return tuple(encoded(voice(), loss_percent=loss_percent))


def decoded(sent: list[bytes] | tuple[bytes, ...], rate_hz: int = RATE_HZ) -> Samples:
    decoder = opus.Decoder(rate_hz)
    return np.concatenate([decoder.decode(packet) for packet in sent])


def aligned(heard: Samples, said: Samples, most: int) -> tuple[Samples, Samples]:
    """Without the codec's delay, of `most` samples."""
    delay = max(range(most), key=lambda delay: float(heard[delay:] @ said[: said.size - delay]))
    return heard[delay:], said[: said.size - delay]


def spectrum(samples: Samples) -> Samples:
    """Loudness of frequency bands in windows of 20 ms."""
    windows = samples[: samples.size // FRAME * FRAME].reshape(-1, FRAME) * np.hanning(FRAME)
    return np.log(np.abs(np.fft.rfft(windows))[:, :140] + 0.01).ravel().astype(np.float32)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
def test_speech_of_any_rate_comes_out_as_it_went_in(rate_hz: int) -> None:
    said = speech.resample(voice(), RATE_HZ, rate_hz)
    sound = decoded(encoded(said, rate_hz))
    assert sound.dtype == np.float32
    assert sound.size == voice().size
    reference = speech.resample(said, rate_hz, RATE_HZ)
    heard, said = aligned(sound, reference, FRAME)
    assert np.corrcoef(heard, said)[0, 1] > 0.8  # its high-pass turns the phase of what is low
    bands = slice(None) if rate_hz > 8_000 else slice(0, None, 2)
    assert np.corrcoef(spectrum(heard)[bands], spectrum(said)[bands])[0, 1] > 0.9


@pytest.mark.parametrize("rate_hz", [8_000, 24_000, 48_000])
def test_a_stream_may_be_decoded_at_any_rate(rate_hz: int) -> None:
    heard = decoded(packets(), rate_hz)
    assert heard.size == voice().size * rate_hz // RATE_HZ
    same, expected = aligned(speech.resample(heard, rate_hz, RATE_HZ), decoded(packets()), 40)
    assert np.corrcoef(same, expected)[0, 1] > 0.98


def test_packets_are_mono_and_hold_20_ms() -> None:
    assert len(packets()) == 200
    assert not any(packet[0] & STEREO for packet in packets())
    assert {opus.duration_ms(packet) for packet in packets()} == {20}
    assert np.mean([len(packet) for packet in packets()]) == pytest.approx(80, abs=8)  # 32 kbit/s


def test_a_short_frame_is_filled_up_with_silence() -> None:
    short, whole = opus.Encoder(RATE_HZ), opus.Encoder(RATE_HZ)
    pcm = to_pcm(voice()[20 * FRAME :][:100])
    assert short.encode(pcm) == whole.encode(pcm + bytes(2 * (FRAME - 100)))


def lost_error(sent: tuple[bytes, ...], *, recovers: bool) -> float:
    """Mean square by which every sixth frame, lost, differs from what it would have been."""
    truth, decoder, error = decoded(sent), opus.Decoder(RATE_HZ), 0.0
    for number, packet in enumerate(sent[:-1]):
        if number % 6 != 3:
            decoder.decode(packet)
            continue
        made_up = decoder.recover(sent[number + 1], 20) if recovers else decoder.conceal(20)
        assert made_up.size == FRAME
        error += float(np.square(made_up - truth[number * FRAME :][:FRAME]).sum())
    return error


def test_a_lost_frame_is_nearer_to_the_truth_from_error_correction_than_concealed() -> None:
    assert lost_error(packets(), recovers=True) < 0.3 * lost_error(packets(), recovers=False)


def test_without_error_correction_a_lost_frame_is_concealed() -> None:
    assert lost_error(packets(0), recovers=True) == lost_error(packets(0), recovers=False)


def test_what_is_concealed_goes_on_for_a_moment_and_dies_away() -> None:
    decoder = opus.Decoder(RATE_HZ)
    loud = int(np.argmax(np.square(voice()).reshape(-1, FRAME).sum(1)))
    last = [decoder.decode(packet) for packet in packets()[: loud + 1]][-1]
    power = [float(np.mean(np.square(decoder.conceal(20)))) for _ in range(10)]
    assert power[0] > 0.1 * float(np.mean(np.square(last)))
    assert power[-1] < 0.01 * power[0]


@pytest.mark.parametrize("ms", [2.5, 7.5, 20.0, 60.0])
def test_as_much_is_made_up_as_was_asked_for(ms: float) -> None:
    decoder = opus.Decoder(RATE_HZ)
    decoder.decode(packets()[50])
    assert decoder.conceal(ms).size == decoder.recover(packets()[52], ms).size == ms * 16


# Bytes of others


@pytest.mark.parametrize("bad", [b"", *NOT_OPUS])
def test_what_is_not_opus_is_refused_and_the_stream_goes_on(bad: bytes) -> None:
    decoder = opus.Decoder(RATE_HZ)
    begin = [decoder.decode(packet) for packet in packets()[:60]]
    with pytest.raises(MediaError, match="expected"):
        decoder.decode(bad)
    with pytest.raises(MediaError, match="expected"):
        decoder.recover(bad, 20)
    with pytest.raises(MediaError, match="expected"):
        opus.duration_ms(bad)
    rest = [decoder.decode(packet) for packet in packets()[60:]]
    assert np.array_equal(np.concatenate([*begin, *rest]), decoded(packets()))


@given(bad=st.lists(st.binary(max_size=400), max_size=8))
def test_no_bytes_bring_anything_but_a_refusal_or_sound(bad: list[bytes]) -> None:
    decoder = opus.Decoder(RATE_HZ)
    for packet in bad:
        with contextlib.suppress(MediaError):
            length_ms = opus.duration_ms(packet)
            assert 2.5 <= length_ms <= opus.MOST_FRAME_MS
            sound = decoder.decode(packet)
            assert sound.size == length_ms * 16
            assert np.abs(sound).max() <= 1
            assert np.abs(decoder.recover(packet, 20)).max() <= 1
    assert decoder.decode(packets()[50]).size == FRAME


@pytest.mark.parametrize(("configuration", "ms"), [(0, 10), (1, 20), (2, 40), (3, 60), (16, 2.5), (17, 5), (31, 20)])
@pytest.mark.parametrize("frames", [1, 2])
def test_the_duration_of_a_packet_is_read_from_its_head(configuration: int, ms: float, frames: int) -> None:
    packet = bytes([configuration << 3 | frames - 1]) + bytes(10)
    assert opus.duration_ms(packet) == ms * frames


def test_stereo_of_another_rate_comes_out_mono() -> None:
    encoder = OpusEncoder()
    tone = (8_000 * np.sin(np.arange(960 * 50) * 2 * np.pi * 440 / 48_000)).astype(np.int16)
    sent: list[bytes] = []
    for number in range(50):
        frame = AudioFrame.from_ndarray(np.repeat(tone[number * 960 :][:960], 2)[None], "s16", "stereo")
        frame.sample_rate, frame.pts = 48_000, number * 960
        sent += encoder.encode(frame)[0]
    assert sent[9][0] & STEREO
    heard = decoded(sent)[RATE_HZ // 2 :]
    assert heard.size == (len(sent) - 25) * FRAME
    assert np.argmax(np.abs(np.fft.rfft(heard))) * RATE_HZ / heard.size == pytest.approx(440, abs=3)
    assert np.sqrt(np.mean(np.square(heard))) == pytest.approx(8_000 / 32_768 / np.sqrt(2), rel=0.1)


def test_a_rate_that_opus_does_not_have_is_refused() -> None:
    with pytest.raises(MediaError):
        opus.Encoder(44_100)
    with pytest.raises(MediaError):
        opus.Decoder(44_100)


def test_what_was_taken_of_memory_is_given_back() -> None:
    def rise_bytes(count: int) -> int:
        before = resident_bytes()
        for _ in range(count):
            opus.Encoder(RATE_HZ).encode(bytes(2 * FRAME))
            opus.Decoder(RATE_HZ).conceal(20)
        gc.collect()
        return resident_bytes() - before

    rise_bytes(50)
    assert rise_bytes(400) < 5_000_000  # a hundredth of what it takes would be 12 kB each


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
