from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from benchmarks.overlaps.sounds import BANDS_HZ, EchoPath, SoundKind
from tests.support.overlaps import (
    NOISE_KINDS,
    SOUND_KINDS,
    SYNTHESISERS,
    Echo,
    Noise,
    NoiseKind,
    Overlap,
    ScriptError,
    Sound,
    asked,
    echo_stream,
    level_db,
    load,
    render,
    spoken,
)
from tests.support.speech import (
    RATE_HZ,
    RMS_LEVEL,
    Samples,
    pooled_word_error_rate,
    recognise,
    resample,
    with_silence,
    word_error_rate,
)

HELD_OUT = Path(__file__).parents[1] / "benchmarks" / "overlaps" / "held_out.toml"
QUESTION = "Tell me a story."
SCRIPT = """
[[overlap]]
name = "{name}"
category = "cough"
question = "Tell me a story."
after_ms = 900
sound = {{ kind = "cough", seed = 1 }}
"""


@pytest.fixture(scope="module")
def held_out() -> list[Overlap]:
    return load(HELD_OUT)


def loaded(folder: Path, text: str) -> list[Overlap]:
    path = folder / "scripts.toml"
    path.write_text(text)
    return load(path)


def sound(kind: SoundKind, seed: int, wanted_db: float = 0.0) -> Samples:
    return render(Overlap("sound", "cough", QUESTION, after_ms=900, sound=Sound(kind, seed, wanted_db)))


def noise(kind: NoiseKind, seed: int, snr_db: float = 10.0) -> Samples:
    return render(Overlap("bed", "noise", QUESTION, after_ms=900, noise=Noise(kind, snr_db, 3.0, seed)))


def heard(samples: Samples) -> str:
    return recognise(with_silence(samples, 0.5, 0.5), RATE_HZ)


def rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def above_hz(samples: Samples, hz: float) -> float:
    """The share of the energy above `hz`."""
    powers = np.square(np.abs(np.fft.rfft(samples)))
    return float(powers[np.fft.rfftfreq(len(samples), 1 / RATE_HZ) > hz].sum() / powers.sum())


def test_the_held_out_scripts_are_of_every_category(held_out: list[Overlap]) -> None:
    expected = {"interruption": 14, "backchannel": 10, "cough": 8, "noise": 6, "echo": 6, "pause": 6}
    assert Counter(overlap.category for overlap in held_out) == expected


def test_the_held_out_scripts_are_varied(held_out: list[Overlap]) -> None:
    assert len({overlap.name for overlap in held_out}) == len(held_out)
    assert {(overlap.echo.level_db, overlap.echo.path) for overlap in held_out if overlap.echo} == {
        (level, path) for level in (-10, -20, -30) for path in get_args(EchoPath)
    }
    assert {overlap.noise.snr_db for overlap in held_out if overlap.noise} == {20, 10, 5}
    interruptions = [overlap for overlap in held_out if overlap.category == "interruption"]
    assert sum(overlap.voice.startswith("human:") for overlap in interruptions) == 2
    assert len({overlap.voice for overlap in interruptions}) >= 7
    assert min(overlap.level_db for overlap in interruptions) <= -8
    assert max(overlap.level_db for overlap in interruptions) >= 3


def test_every_held_out_script_is_heard_at_its_level(held_out: list[Overlap]) -> None:
    for overlap in (overlap for overlap in held_out if not overlap.echo):
        samples = render(overlap)
        assert samples.dtype == np.float32
        assert np.isfinite(samples).all()
        assert np.abs(samples).max() <= 0.9
        assert 0.2 * RATE_HZ <= len(samples) <= 10 * RATE_HZ
        wanted_db = overlap.sound.level_db if overlap.sound else overlap.level_db
        if overlap.noise:
            wanted_db = -overlap.noise.snr_db
            assert len(samples) == round(overlap.noise.seconds * RATE_HZ)
        assert level_db(samples) == pytest.approx(wanted_db, abs=1.0), overlap.name


def test_the_words_of_every_held_out_interruption_are_clear(held_out: list[Overlap]) -> None:
    pairs = {o.name: (o.says or "", heard(render(o))) for o in held_out if o.category == "interruption"}
    assert {name: pair for name, pair in pairs.items() if word_error_rate(*pair) > 0.25} == {}
    assert pooled_word_error_rate(pairs.values()) < 0.1


@pytest.mark.soak
def test_the_held_out_questions_are_clear(held_out: list[Overlap]) -> None:
    pairs = [(overlap.question, heard(asked(overlap))) for overlap in held_out if overlap.question]
    assert pooled_word_error_rate(pairs) < 0.1


@pytest.mark.soak
def test_every_voice_says_the_words() -> None:
    text = "Hold on, please. I have another question."
    rates = {voice: word_error_rate(text, heard(spoken(text, voice))) for voice in SYNTHESISERS}
    assert {voice: rate for voice, rate in rates.items() if rate > 0.2} == {}


def test_every_voice_is_another_one() -> None:
    by_sound = {spoken("Hold on, please.", voice).tobytes(): voice for voice in SYNTHESISERS}
    assert sorted(by_sound.values()) == sorted(SYNTHESISERS)


@pytest.mark.parametrize("voice", ["flite", "festival", "espeak-ng"])
def test_rate_changes_the_length_and_pitch_the_spectrum(voice: str) -> None:
    text = "The train to the airport leaves at nine."
    plain, fast, high = (spoken(text, voice, rate, pitch) for rate, pitch in ((1.0, 1.0), (1.25, 1.0), (1.0, 1.2)))
    assert len(fast) / len(plain) == pytest.approx(1 / 1.25, abs=0.08)
    assert len(high) / len(plain) == pytest.approx(1.0, abs=0.08)
    assert above_hz(high, 600) > above_hz(plain, 600) * 1.03


def test_a_hum_of_assent_is_hummed_and_not_spelt() -> None:
    assert heard(spoken("mm-hm", "flite:rms", 0.8)).lower().startswith("mm")
    with pytest.raises(ScriptError, match="expected 'mm-hm' alone"):
        spoken("mm-hm, I see", "flite:rms")
    with pytest.raises(ScriptError, match="by espeak"):
        spoken("mm-hm", "festival")


def test_a_person_says_what_the_script_says() -> None:
    with pytest.raises(ScriptError, match="he was not an ill disposed young man"):
        spoken("stop", "human:librivox/1")


def test_a_pause_lasts_as_written() -> None:
    parts = ("I would like to know", "how tall the tower is.")
    samples = render(Overlap("tall", "pause", parts=parts, pauses_ms=(700,)))
    steps_s = np.diff(np.flatnonzero(np.abs(samples) > 0.004)) / RATE_HZ
    assert steps_s[steps_s > 0.3].tolist() == pytest.approx([0.72], abs=0.06)


def test_the_same_seed_is_the_same_sound_and_another_seed_another() -> None:
    for kind in SOUND_KINDS:
        assert sound(kind, 1).tobytes() == sound(kind, 1).tobytes()
        assert sound(kind, 1).tobytes() != sound(kind, 2).tobytes()
    for bed in NOISE_KINDS:
        assert noise(bed, 1).tobytes() == noise(bed, 1).tobytes()
        assert noise(bed, 1).tobytes() != noise(bed, 2).tobytes()


def test_each_sound_has_its_own_place_in_the_spectrum() -> None:
    high = {kind: np.mean([above_hz(sound(kind, seed), 3000) for seed in range(4)]) for kind in SOUND_KINDS}
    assert max(high["hum"], high["door_slam"], high["throat_clear"]) < 0.1
    assert min(high["sniff"], high["typing"], high["glass_clink"]) > 0.4
    assert 0.05 < high["cough"] < 0.5


@pytest.mark.parametrize("snr_db", [20.0, 10.0, 5.0])
@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_noise_is_as_far_under_speech_as_written(kind: NoiseKind, snr_db: float) -> None:
    assert 20 * np.log10(RMS_LEVEL / rms(noise(kind, 3, snr_db))) == pytest.approx(snr_db, abs=0.1)


def test_a_car_is_deep_and_white_noise_is_not() -> None:
    assert above_hz(noise("car", 1), 1000) < 0.02 < 0.8 < above_hz(noise("white", 1), 1000)
    assert above_hz(noise("street", 1), 1000) < above_hz(noise("pink", 1), 1000) < above_hz(noise("white", 1), 1000)


@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
@pytest.mark.parametrize("path", get_args(EchoPath))
@pytest.mark.parametrize(("delay_ms", "level"), [(40, -10), (180, -20), (350, -30)])
def test_an_echo_comes_after_its_delay_at_its_level(path: EchoPath, delay_ms: int, level: int, rate_hz: int) -> None:
    speech = resample(spoken("The quick brown fox jumps over the lazy dog.", "flite"), RATE_HZ, rate_hz)
    sent = np.pad(speech, (0, rate_hz))
    back = echo_stream(Echo(delay_ms, level, path), rate_hz).push(sent)
    assert back.dtype == np.float32
    assert back.shape == sent.shape
    spectrum = np.fft.rfft(sent, 2 * len(sent))
    likeness = np.fft.irfft(np.fft.rfft(back, 2 * len(sent)) * spectrum.conj())
    assert np.argmax(likeness) * 1000 / rate_hz == pytest.approx(delay_ms, abs=1)
    low_hz, high_hz = BANDS_HZ[path]
    hz = np.fft.rfftfreq(2 * len(sent), 1 / rate_hz)
    in_band = np.fft.irfft(np.where((hz >= low_hz) & (hz <= high_hz), spectrum, 0))
    assert 10 * np.log10(np.square(back).sum() / np.square(in_band).sum()) == pytest.approx(level, abs=1)


@pytest.mark.parametrize("path", get_args(EchoPath))
def test_an_echo_is_the_same_however_the_audio_is_cut(path: EchoPath) -> None:
    sent = spoken("The quick brown fox jumps over the lazy dog.", "festival")
    cuts = np.random.default_rng(1).integers(0, len(sent), 40)
    streams = [echo_stream(Echo(90, -10, path), RATE_HZ) for _ in range(2)]
    pieces = [streams[0].push(piece) for piece in np.split(sent, np.sort(cuts))]
    np.testing.assert_allclose(np.concatenate(pieces), streams[1].push(sent), atol=1e-6)


def test_a_phone_is_narrow_and_overloads_a_little_and_a_room_goes_on_sounding() -> None:
    phone, room = (echo_stream(Echo(40, 0, path), RATE_HZ) for path in ("phone", "loudspeaker"))
    hiss = np.pad(np.random.default_rng(1).normal(0, 0.2, RATE_HZ), (0, RATE_HZ)).astype(np.float32)
    narrow, wide = phone.push(hiss), room.push(hiss)
    assert above_hz(narrow, 3600) < 0.02 < 0.3 < above_hz(wide, 3600)
    after = slice(RATE_HZ + RATE_HZ * 60 // 1000, None)
    assert rms(narrow[after]) < 1e-6 < 0.005 < rms(wide[after])
    softer = echo_stream(Echo(40, 0, "phone"), RATE_HZ).push(hiss * np.float32(0.01))
    assert 0.8 < rms(narrow) / (100 * rms(softer)) < 0.98


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("after_ms", "after_s", r"Overlap has no key \['after_s'\]"),
        ("seed = 1", "seed = 1, loud = 2", r"Sound has no key \['loud'\]"),
        ('kind = "cough"', 'kind = "coff"', r"'coff'.*\$\.sound\.kind"),
        ('category = "cough"', 'category = "coughs"', r"'coughs'.*\$\.category"),
        ('category = "cough"', 'category = "echo"', r"category 'echo' has \['sound'\], expected only 'echo'"),
        ("after_ms = 900", 'after_ms = "900"', r"\$\.after_ms"),
        ("after_ms = 900", "after_ms = 300", "after_ms is 300, expected 400 to 3000"),
        ("after_ms = 900", 'after_ms = 900\nquestion_voice = "flite:bob"', "voice is 'flite:bob', expected one of"),
        ("after_ms = 900", 'after_ms = 900\nsays = "stop"', r"has \['says', 'sound'\], expected only 'sound'"),
        ("seed = 1", "seed = 1, level_db = 40", "sound.level_db is 40.*, expected -30 to 10"),
        ("[[overlap]]", "[[script]]", r"has the keys \['script'\], expected only 'overlap'"),
    ],
)
def test_what_is_not_in_the_format_is_refused_by_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    good = SCRIPT.format(name="good")
    assert loaded(tmp_path, good)[0].sound == Sound("cough", 1)
    with pytest.raises(ScriptError, match=message):
        loaded(tmp_path, good.replace(old, new))


def test_two_scripts_of_one_name_are_refused(tmp_path: Path) -> None:
    assert len(loaded(tmp_path, SCRIPT.format(name="one") + SCRIPT.format(name="two"))) == 2
    with pytest.raises(ScriptError, match=r"two scripts of the name \['one'\]"):
        loaded(tmp_path, SCRIPT.format(name="one") * 2)
