"""Measure the voice on text that was held out: python -m training.evaluate WORK [--replies N] [--varied N].

Word error rates by two recognisers of the teacher itself, of its codes through its own decoder, of its codes through
Code2Wav, and of talker and Code2Wav; replies with words left out or said twice; Code2Wav against the teacher's sound.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import jiwer
import numpy as np
import torch
from hibari import dsp
from numpy.typing import NDArray
from torch import Tensor

from tests.support.speech import normalised, recognise, resample, write_wav
from training import export
from training.quantise import Quantiser, stacked, unstacked
from training.synthesise import Utterance, utterance
from training.teacher import HEAD, Teacher
from training.text import held_out
from voice_runtime import assets
from voice_runtime.cli import default_pipeline
from voice_runtime.models.code2wav import RATE_HZ, Code2Wav, offline
from voice_runtime.models.moonshine import Moonshine
from voice_runtime.models.talker import Reader, Talker, generate, no_history
from voice_runtime.pipeline.config import load
from voice_runtime.stages.text import ClauseCutter

Sound = NDArray[np.float32]
REPLIES = 20
VARIED = 100
COUNTED = 200
LOST_RUN = 2  # this many words in a row missing or added count as a fault of the voice, not of a recogniser
LONGEST_S = 29.0
# The defaults of `transcribe`, openai/whisper 20250625, whisper/transcribe.py: without them a spelled letter may be
# repeated for ever.
WHISPER_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
PAIRS = 40  # sounds kept for training/quality.py


@dataclass(frozen=True, slots=True)
class Voices:
    """Everything that can speak a text, with what was learnt so far."""

    teacher: Teacher
    quantiser: Quantiser
    talker: Talker
    vocoder: Code2Wav

    def hibari(self, text: str) -> Sound:
        return np.concatenate([self._whole(item) for item in self._spoken(text)])

    def coded(self, text: str) -> Sound:
        """Codes, decoded by the quantiser and the teacher's last blocks."""
        frames = self.quantiser.decode(self.codes(text))
        return self._teacher_sound(*unstacked(frames))

    def revocoded(self, text: str) -> Sound:
        return offline(self.vocoder, self.codes(text).numpy())

    def talked(self, text: str) -> Sound:
        return offline(self.vocoder, self.talk(text).numpy())

    def codes(self, text: str) -> Tensor:
        return torch.cat([self.quantiser.encode(stacked(item)) for item in self._spoken(text)])

    def talk(self, text: str) -> Tensor:
        """Codes int64 (T, books) of the talker, the text cut into clauses as the pipeline does."""
        reader, limit = Reader(self.teacher.voice, self.talker), self.talker.config.history_frames
        history, made = no_history(self.talker.config), []
        for piece, last in clauses(text):
            chunk = reader.read(piece, last)
            if chunk is None:
                continue
            made.append(generate(self.talker.lm, history, chunk.conditioning))
            history = history.then(chunk.conditioning, made[-1], limit)
        return torch.cat(made)

    def _spoken(self, text: str) -> Iterator[Utterance]:
        found = utterance(self.teacher, text)
        if found is None:
            raise ValueError(f"{text!r} cannot be spoken")
        yield found

    def _whole(self, item: Utterance) -> Sound:
        return self._teacher_sound(torch.from_numpy(item.latents.astype(np.float32)), torch.from_numpy(item.f0_hz))

    def _teacher_sound(self, latents: Tensor, f0_hz: Tensor) -> Sound:
        with torch.inference_mode():
            head = self.teacher.decoder(latents[None])[0].T.numpy()
        parts = (np.ascontiguousarray(part) for part in np.split(head, len(HEAD)))
        sound: Sound = dsp.synth(*parts, f0_hz.numpy(), np.random.default_rng(0))
        return sound


def clauses(text: str) -> list[tuple[str, bool]]:
    """Pieces of a reply as the default pipeline cuts it, and whether each is the last."""
    cutter = ClauseCutter(load(default_pipeline()).text_settings)  # as the program speaks
    pieces = [*cutter.push(text), *cutter.close()]
    return [(piece, index == len(pieces) - 1) for index, piece in enumerate(pieces)]


@dataclass(frozen=True, slots=True)
class Ears:
    moonshine: Moonshine

    def moonshine_reads(self, sound: Sound) -> str:
        clip = resample(sound, RATE_HZ, 16_000)[: int(LONGEST_S * 16_000)].astype(np.float32)
        return self.moonshine.transcribe([clip])[0].text

    def whisper_reads(self, sound: Sound) -> str:
        return recognise(sound, RATE_HZ, WHISPER_TEMPERATURES)


def ears() -> Ears:
    names = ("moonshine-encoder", "moonshine-decoder", "moonshine-tokenizer")
    return Ears(Moonshine(*(assets.locate(name) for name in names)))


def error_rate(pairs: list[tuple[str, str]]) -> float:
    """Errors per word over all pairs of (text, what was heard), normalised."""
    return float(jiwer.wer([normalised(text) for text, _ in pairs], [normalised(heard) for _, heard in pairs]))


def lost_or_repeated(text: str, heard: str) -> bool:
    """Whether LOST_RUN words or more in a row are missing, or were added."""
    found = jiwer.process_words(normalised(text), normalised(heard))
    for part in found.alignments[0]:
        missing = part.ref_end_idx - part.ref_start_idx if part.type == "delete" else 0
        added = part.hyp_end_idx - part.hyp_start_idx if part.type == "insert" else 0
        if max(missing, added) >= LOST_RUN:
            return True
    return False


def measure_errors(voices: Voices, texts: list[str], what: str) -> dict[str, dict[str, float]]:
    listener = ears()
    speakers: dict[str, Callable[[str], Sound]] = {
        "hibari": voices.hibari,
        "codes, teacher's decoder": voices.coded,
        "codes, Code2Wav": voices.revocoded,
        "talker, Code2Wav": voices.talked,
    }
    table = {}
    for name, speak in speakers.items():
        sounds = [speak(text) for text in texts]
        by_moonshine = list(zip(texts, map(listener.moonshine_reads, sounds), strict=True))
        by_whisper = list(zip(texts, map(listener.whisper_reads, sounds), strict=True))
        table[name] = {"moonshine": error_rate(by_moonshine), "whisper": error_rate(by_whisper)}
        print(
            f"{what}, {name}: moonshine {table[name]['moonshine']:.2%}, whisper {table[name]['whisper']:.2%}",
            flush=True,
        )
        if name == "talker, Code2Wav":
            _show_errors(by_moonshine, by_whisper)
    return table


def _show_errors(*heard: list[tuple[str, str]]) -> None:
    for (text, first), (_, second) in zip(*heard, strict=True):
        wrong = [said for said in (first, second) if normalised(said) != normalised(text)]
        if len(wrong) == len(heard):
            print(f"   {text!r} was heard as {wrong}", flush=True)


def count_faults(voices: Voices, texts: list[str]) -> dict[str, int]:
    """Over replies: words lost or repeated by both recognisers' account; length not within 25 % of the teacher's."""
    listener, lost, length = ears(), 0, 0
    for text in texts:
        codes = voices.talk(text)
        seconds, wanted = len(codes) / 20, len(voices.codes(text)) / 20
        length += not 0.75 <= seconds / wanted <= 1.25
        sound = offline(voices.vocoder, codes.numpy())
        if lost_or_repeated(text, listener.moonshine_reads(sound)):
            lost += lost_or_repeated(text, listener.whisper_reads(sound))
    print(f"of {len(texts)} replies: {lost} with words lost or repeated, {length} of another length", flush=True)
    return {"replies": len(texts), "lost_or_repeated": lost, "another_length": length}


def write_pairs(voices: Voices, texts: list[str], folder: Path) -> None:
    """The teacher's sound and Code2Wav's of its codes, at 16 kHz, for metrics that want both."""
    folder.mkdir(exist_ok=True)
    for index, text in enumerate(texts):
        for name, sound in (("teacher", voices.hibari(text)), ("code2wav", voices.revocoded(text))):
            write_wav(folder / f"{index:03d}-{name}.wav", resample(sound, RATE_HZ, 16_000), 16_000)


def measure_speed(voices: Voices, text: str) -> dict[str, float]:
    """Milliseconds of one thread for a frame of 50 ms: the talker's plain loop; Code2Wav by single frames and fours."""
    began = time.process_time()
    codes = voices.talk(text).numpy()
    speed = {"talker_ms": 1e3 * (time.process_time() - began) / len(codes)}
    mask = np.ones(1, np.bool_)
    for size in (1, 4):
        state, began = voices.vocoder.init_state(1), time.process_time()
        for first in range(0, len(codes), size):
            voices.vocoder.decode(state, codes[None, first : first + size], mask)
        speed[f"code2wav_by_{size}_ms"] = 1e3 * (time.process_time() - began) / len(codes)
    print(", ".join(f"{name} {value:.2f}" for name, value in speed.items()), flush=True)
    return speed


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--replies", type=int, default=REPLIES)
    arguments.add_argument("--varied", type=int, default=VARIED)
    arguments.add_argument("--counted", type=int, default=COUNTED)
    arguments.add_argument("--weights", type=Path, default=export.TARGET)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    ctranslate2.set_random_seed(0)  # of Whisper's draws
    voices = Voices(Teacher(), Quantiser.load(options.work / "quantiser.npz"), *export.load(options.weights))
    replies, varied = held_out(options.work / "text")
    figures: dict[str, object] = {"speed": measure_speed(voices, replies[0])}
    write_pairs(voices, replies[:PAIRS], options.work / "pairs")
    figures["replies"] = measure_errors(voices, replies[: options.replies], "replies")
    figures["varied"] = measure_errors(voices, varied[: options.varied], "varied")
    figures["faults"] = count_faults(voices, replies[40 : 40 + options.counted])
    (options.work / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
