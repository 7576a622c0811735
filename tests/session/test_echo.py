"""The agent's own sound on its way back, beside real voices. Every law is held on both sides of the threshold."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.speech import RATE_HZ, RMS_LEVEL, Samples, human_clips, synthesise, with_silence
from voice_runtime.session.echo import ECHO_LIKENESS, FRAME_SAMPLES, EchoGuard

AGENT = "Sure, I can help you with that. Your order was sent on Monday and should arrive by Thursday afternoon."
CALLER = "Wait, stop, that is not what I asked for. I would like to know something else, please."
NOISE_RMS = 0.001  # -60 dBFS
CALLERS = ("festival", "espeak-ng", "human")
ONSET_FRAMES = 4  # in which the guard may be unsure
INTERRUPTION_FRAMES = 5  # so much voice stops the agent

# (path, level of the echo to the agent in dB, delay in ms)
ECHOES = [("flat", -10, 20), ("telephone", -20, 130), ("room", -10, 270), ("room", -30, 60), ("telephone", -30, 500)]


@cache
def agent() -> Samples:
    return with_silence(synthesise(AGENT, "flite"), before_s=0.3)


@cache
def caller(name: str, begins_s: float = 1.5) -> Samples:
    """Silence, then a voice: as long as the agent's speech."""
    match name:
        case "festival" | "espeak-ng":
            voice = synthesise(CALLER, name)
        case _:
            clip = human_clips()[0].samples
            voice = clip * np.float32(RMS_LEVEL / rms(clip))
    return np.resize(with_silence(voice, before_s=begins_s, after_s=10.0), len(agent()))


def rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples))))


def echo(path: str, level_db: float, delay_ms: float, played: Samples | None = None) -> Samples:
    """`played` (the agent, unless given), mildly saturated, through a path."""
    played = agent() if played is None else played
    driven = np.tanh(2.5 * played)
    through = np.convolve(driven, impulse_response(path))[: len(played)]
    through *= rms(played) / rms(through) * 10 ** (level_db / 20)
    delay = round(delay_ms * RATE_HZ / 1000)
    return np.pad(through, (delay, 0))[: len(played)].astype(np.float32)


def impulse_response(path: str) -> NDArray[np.float64]:
    match path:
        case "telephone":
            return band_pass(300, 3400)
        case "room":
            size = RATE_HZ * 120 // 1000
            tail = np.random.default_rng(3).standard_normal(size) * 10 ** (-3 * np.arange(size) / size)
            tail *= 0.7 / np.sqrt(tail @ tail)
            tail[0] += 1.0
            return np.convolve(band_pass(200, 6000), tail)
        case _:
            return np.ones(1)


def band_pass(low_hz: float, high_hz: float) -> NDArray[np.float64]:
    at = np.arange(255) - 127
    low, high = 2 * low_hz / RATE_HZ, 2 * high_hz / RATE_HZ
    taps: NDArray[np.float64] = (high * np.sinc(high * at) - low * np.sinc(low * at)) * np.hamming(255)
    return taps


def noise() -> Samples:
    return (NOISE_RMS * np.random.default_rng(5).standard_normal(len(agent()))).astype(np.float32)


def frames(samples: Samples) -> Samples:
    whole = len(samples) // FRAME_SAMPLES
    return samples[: whole * FRAME_SAMPLES].reshape(whole, FRAME_SAMPLES)


def likeness(heard: Samples, played: Samples | None = None, guard: EchoGuard | None = None) -> NDArray[np.float64]:
    """Of every frame of `heard` while `played` (the agent, unless given) sounds."""
    guard, played = guard or EchoGuard(), agent() if played is None else played
    return np.array([guard.push(*pair) for pair in zip(frames(heard), frames(played), strict=True)])


def sounding(samples: Samples) -> NDArray[np.intp]:
    """Numbers of the frames in which a voice is louder than the noise and than its own level less 25 dB."""
    levels = np.sqrt(np.mean(np.square(frames(samples)), axis=1))
    voiced = levels > 1e-6
    return np.flatnonzero(
        levels > max(1.4 * NOISE_RMS, 10 ** (-25 / 20) * float(np.sqrt(np.mean(levels[voiced] ** 2))))
    )


def over(voice: Samples, own: Samples) -> NDArray[np.intp]:
    """Numbers of the frames in which `voice` sounds, and 6 dB above `own`."""
    louder = np.mean(np.square(frames(voice)), axis=1) > 4 * np.mean(np.square(frames(own)), axis=1)
    return np.array([number for number in sounding(voice) if louder[number]])


def alone(own: Samples, voice: Samples) -> NDArray[np.intp]:
    """Numbers of the frames in which `own` sounds and `voice` is yet to begin, without the onset."""
    at = sounding(own)[ONSET_FRAMES:]
    before: NDArray[np.intp] = at[at < sounding(voice)[0] - 3]
    return before


def is_own(likenesses: NDArray[np.float64]) -> NDArray[np.bool_]:
    return likenesses >= ECHO_LIKENESS


def longest_run(flags: NDArray[np.bool_]) -> int:
    longest = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        longest = max(longest, run)
    return longest


@pytest.mark.parametrize(("path", "level_db", "delay_ms"), ECHOES)
def test_an_echo_is_the_agents_own_and_the_noise_before_it_is_not(path: str, level_db: float, delay_ms: float) -> None:
    own = echo(path, level_db, delay_ms)
    found, at = is_own(likeness(own + noise())), sounding(own)
    assert not found[:9].any()  # the agent is silent for 300 ms
    assert np.mean(found[at[ONSET_FRAMES:]]) > 0.98
    assert longest_run(~found[at]) < INTERRUPTION_FRAMES


@pytest.mark.parametrize("name", CALLERS)
def test_a_caller_is_not_the_agents_own_though_an_echo_before_was(name: str) -> None:
    voice = caller(name)
    own = echo("room", -20, 150)
    own[sounding(voice)[0] * FRAME_SAMPLES :] = 0  # an echo canceller has learnt
    found = is_own(likeness(own + voice + noise()))
    assert found[alone(own, voice)].all()
    assert np.mean(found[sounding(voice)[ONSET_FRAMES:]]) < 0.03


@pytest.mark.parametrize(
    ("name", "path", "level_db", "delay_ms"),
    [(name, *way) for name, way in zip((*CALLERS, "espeak-ng", "human"), ECHOES, strict=True)],
)
def test_a_caller_over_the_echo_is_heard_in_time(name: str, path: str, level_db: float, delay_ms: float) -> None:
    voice, own = caller(name, begins_s=2.5), echo(path, level_db, delay_ms)
    found = is_own(likeness(own + voice + noise()))
    assert np.mean(found[alone(own, voice)]) > 0.98
    at = over(voice, own)
    assert longest_run(~found[at[:12]]) >= INTERRUPTION_FRAMES
    assert np.mean(found[at]) < (0.12 if level_db == -10 else 0.05)


@pytest.mark.parametrize("jump_ms", [-60, 20, 200])
def test_a_jump_of_the_delay_is_followed_within_300_ms_and_a_caller_after_it_is_heard(jump_ms: int) -> None:
    jump = 2 * RATE_HZ
    own = echo("room", -20, 100)
    own[jump:] = echo("room", -20, 100 + jump_ms)[jump:]
    voice = caller("festival", begins_s=4.0)
    found = is_own(likeness(own + voice + noise()))
    settled = alone(own, voice)
    assert np.mean(found[settled[settled >= jump // FRAME_SAMPLES + 10]]) > 0.98
    assert np.mean(found[over(voice, own)]) < 0.08


def test_the_level_of_what_is_heard_changes_nothing() -> None:
    heard = echo("telephone", -20, 90) + caller("festival")
    at = sounding(heard)
    loud, soft = likeness(heard + noise())[at], likeness((heard + noise()) * np.float32(0.25))[at]
    np.testing.assert_allclose(soft[ONSET_FRAMES:], loud[ONSET_FRAMES:], atol=0.02)
    assert loud.min() < 0.1 < 0.9 < loud.max()


def test_with_nothing_played_nothing_is_the_agents_own_and_the_same_sound_played_is() -> None:
    own = echo("telephone", -20, 90)
    assert not likeness(own + noise(), np.zeros_like(own)).any()
    assert likeness(own + noise()).max() > 0.95


def test_sound_at_the_level_of_the_noise_decides_nothing() -> None:
    guard = EchoGuard()
    own = echo("room", -10, 40)
    end = sounding(own)[40] + 1
    answers = likeness(
        own[: end * FRAME_SAMPLES] + noise()[: end * FRAME_SAMPLES], agent()[: end * FRAME_SAMPLES], guard
    )
    assert is_own(answers[-1:]).all()
    quiet = noise()[: 20 * FRAME_SAMPLES]
    after = likeness(quiet, np.zeros_like(quiet), guard)
    assert (after[1:] == after[1]).all()
    assert not EchoGuard().push(quiet[:FRAME_SAMPLES], agent()[-FRAME_SAMPLES:])


def test_a_reset_forgets_everything() -> None:
    guard = EchoGuard()
    heard = echo("flat", -10, 200) + noise()
    first = likeness(heard, guard=guard)
    guard.reset()
    np.testing.assert_array_equal(likeness(heard, guard=guard), first)
    assert first.min() < 0.1 < 0.9 < first.max()


def test_a_frame_of_another_length_is_refused() -> None:
    frame = np.zeros(FRAME_SAMPLES, np.float32)
    with pytest.raises(ValueError, match="512 and 256 samples, expected 512"):
        EchoGuard().push(frame, frame[:256])
