"""The talker: text to codec frames. A phoneme front end gives each frame its conditioning; a language model its codes.

No queue, no scheduler, no sampling policy: those who serve it bring their own attention and their own choice of codes.
`generate` is the plain loop that they are compared with.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional

from voice_runtime.runner.codec_lm import NO_CODE, CodecLM, CodecLMConfig, KvCache

SLOT_S = 0.025
SLOTS_PER_FRAME = 2
FRAME_HZ = 20
SLOT_FEATURES = 3
PAD = 0
SPACE = 16
CLAUSE_ENDS = (1, 2, 3, 4, 5, 6, 9, 10)  # ; : , . ! ? dash and ellipsis
SENTENCE_END = ".!?…"
QUOTES = "\"'\u201d\u2019)"

Choose = Callable[[Tensor], Tensor]  # logits (rows, codes) to ids (rows,)


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """Sizes. left_phonemes, history_frames: how far back a chunk may look, in training as in use.

    right_phonemes: how much a chunk that ends in mid-sentence sees of the next word, the space before it included
    vocabulary: Hibari's phoneme ids. hidden: of the gated feed-forward parts. codes: of each book.
    """

    vocabulary: int = 178
    width: int = 256
    heads: int = 4
    layers: int = 5
    hidden: int = 512
    encoder_layers: int = 5
    encoder_kernel: int = 9
    books: int = 4
    codes: int = 1024
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    left_phonemes: int = 48
    right_phonemes: int = 12
    history_frames: int = 40

    @property
    def lm(self) -> CodecLMConfig:
        return CodecLMConfig(
            self.width, self.heads, self.layers, self.hidden, self.books, self.codes, self.rope_theta, self.norm_eps
        )


class Phonemizer(Protocol):
    """hibari.Hibari: phoneme strings, one per sentence, and their ids with a pad at both ends."""

    def phonemize(self, text: str) -> list[str]: ...

    def ids(self, phonemes: str) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class WordSpan:
    """Where a word of the text lies in its chunk. first_frame to end_frame: frames of 50 ms, the end excluded."""

    text: str
    first_frame: int
    end_frame: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text, ready to be spoken.

    text: what of the reply it speaks; the chunks' texts joined are the reply
    conditioning: float32 (K, width), one row for each frame that it takes: exactly K frames are to be generated
    words: the text's words in order, each with the pause of its punctuation; frames between them are spaces
    """

    text: str
    conditioning: Tensor
    words: tuple[WordSpan, ...]

    @property
    def frames(self) -> int:
        return len(self.conditioning)


class EncoderBlock(nn.Module):
    """Depthwise convolution over the phonemes, then a small network on each."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x: (rows, phonemes, width); keep: bool (rows, phonemes, 1), False where a row has ended."""
        hidden = self.norm(self.conv((x * keep).mT).mT)
        return x + self.down(functional.silu(self.up(hidden)))


class FrontEnd(nn.Module):
    """Phoneme ids to encodings, durations and the conditioning of whole frames."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        width = config.width
        self.embedding = nn.Embedding(config.vocabulary, width)
        self.blocks = nn.ModuleList(EncoderBlock(width, config.encoder_kernel) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(width)
        self.duration = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.place = nn.Linear(SLOT_FEATURES, width)
        self.frame = nn.Linear(SLOTS_PER_FRAME * width, width)

    def encode(self, ids: Tensor, keep: Tensor) -> Tensor:
        """ids: int64 (rows, phonemes); keep: bool, same shape. Returns (rows, phonemes, width)."""
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, keep.unsqueeze(-1))
        return self.norm(x)

    def log_slots(self, encodings: Tensor) -> Tensor:
        """Natural logarithm of each phoneme's length in slots of 25 ms: (..., width) to (...)."""
        return self.duration(encodings).squeeze(-1)

    def conditioning(self, encodings: Tensor, features: Tensor) -> Tensor:
        """encodings: (..., slots, width), features: (..., slots, 3), of an even number of slots.

        Returns (..., slots / 2, width).
        """
        slots = encodings + self.place(features)
        return self.frame(slots.unflatten(-2, (-1, SLOTS_PER_FRAME)).flatten(-2))


def slot_features(slots: Tensor) -> Tensor:
    """Where in its phoneme each slot lies: float32 (slots, 3), from the phonemes' int64 lengths."""
    length = slots.repeat_interleave(slots)
    first = (slots.cumsum(0) - slots).repeat_interleave(slots)
    index = torch.arange(len(length)) - first
    return torch.stack([(index + 0.5) / length, length.log(), (index == 0).float()], -1)


class Talker(nn.Module):
    """Both halves, and how text that arrives in pieces becomes chunks."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.config = config
        self.front = FrontEnd(config)
        self.lm = CodecLM(config.lm)

    @classmethod
    def load(cls, path: Path) -> "Talker":
        """Read weights (fp16, computed with in float32) and their sizes from a safetensors file."""
        with safe_open(str(path), "pt") as file:
            config = TalkerConfig(**json.loads(file.metadata()["config"]))
            weights = {name: file.get_tensor(name).float() for name in file.keys()}
        talker = cls(config)
        talker.load_state_dict(weights)
        return talker.eval().requires_grad_(False)

    def metadata(self) -> dict[str, str]:
        """What `load` needs besides the tensors."""
        return {"config": json.dumps(asdict(self.config))}

    @torch.inference_mode()
    def encode(self, piece: "Piece", before: Sequence[int]) -> Chunk:
        """What is to be generated for one piece of a reply.

        before: the phonemes spoken before it (only the last left_phonemes of them are looked at)
        """
        left = list(before)[-self.config.left_phonemes :]
        row = torch.tensor([[*left, *piece.ids, *piece.ahead[: self.config.right_phonemes]]])
        own = slice(len(left), len(left) + len(piece.ids))
        encodings = self.front.encode(row, torch.ones_like(row, dtype=torch.bool))[0, own]
        slots = whole_frames(self.front.log_slots(encodings))
        spread = encodings.repeat_interleave(slots, 0)
        conditioning = self.front.conditioning(spread, slot_features(slots))
        ends = [0, *slots.cumsum(0).tolist()]
        words = tuple(_span(word, ends[first], ends[end]) for word, first, end in piece.words)
        return Chunk(piece.text, conditioning, words)


def whole_frames(log_slots: Tensor) -> Tensor:
    """Durations as int64 slots: each at least 1, their sum even (the last phoneme takes the odd one)."""
    slots = log_slots.exp().round().long().clamp(min=1)
    slots[-1] += slots.sum() % SLOTS_PER_FRAME
    return slots


def _span(text: str, first_slot: int, end_slot: int) -> WordSpan:
    first = first_slot // SLOTS_PER_FRAME
    return WordSpan(text, first, max(first + 1, -(-end_slot // SLOTS_PER_FRAME)))


@dataclass(frozen=True, slots=True)
class Piece:
    """Phonemes of a piece of text, and of the word after it that is not spoken yet.

    words: (text, first phoneme, end phoneme), positions in `ids`
    """

    text: str
    ids: list[int]
    words: list[tuple[str, int, int]]
    ahead: list[int]

    def without_last_word(self) -> "Piece":
        """The last word is seen, not spoken: how a word ends depends on the next one. As it is when it has but one."""
        text = self.text.rstrip()
        if len(self.words) < 2 or self.ids[-1] in CLAUSE_ENDS or not text.endswith(self.words[-1][0]):
            return self
        word, first, _ = self.words[-1]
        border = self.ids[first - 1]
        ahead = [SPACE, *_runs(self.ids[first:])[0]] if border == SPACE else []
        return Piece(self.text[: len(text) - len(word)], self.ids[: first - 1], self.words[:-1], ahead)


class Reader:
    """The text of one reply, piece by piece, as phonemes: which sentence is open, and what was said before.

    Of a piece that ends in mid-sentence, without punctuation, the last word is kept back and spoken with the next one.
    """

    def __init__(self, phonemizer: Phonemizer, talker: Talker) -> None:
        self._phonemizer = phonemizer
        self._talker = talker
        self._before: list[int] = []
        self._open = False  # within a sentence: the next piece goes on without its silence
        self.kept_back = ""

    def read(self, text: str, last: bool = False) -> Chunk | None:
        """The next piece as a chunk; None when there is nothing to say in it.

        last: the reply ends here, so its sentence does, whatever the punctuation. The caller cuts at words.
        """
        text = self.kept_back + text
        sentences = [string for string in self._phonemizer.phonemize(text) if any(map(str.isalpha, string))]
        if not sentences:
            return None
        ends = last or _ends_sentence(sentences[-1])
        whole = self._piece(text, sentences, ends)
        piece = whole if ends else whole.without_last_word()
        self.kept_back = text[len(piece.text) :]
        chunk = self._talker.encode(piece, self._before)
        self._open = piece.ids[-1] != PAD
        self._before = [*self._before, *piece.ids][-self._talker.config.left_phonemes :]
        return chunk

    def _piece(self, text: str, sentences: Sequence[str], ends: bool) -> Piece:
        ids: list[int] = []
        spoken: list[tuple[int, int]] = []  # the phonemes of each phonemic word, positions in ids
        for index, string in enumerate(sentences):
            ids += [SPACE] if self._open and index == 0 else [PAD]
            for word in _runs(self._phonemizer.ids(string)[1:-1]):
                ids += [SPACE] if spoken and ids[-1] not in (PAD, SPACE) else []
                spoken.append((len(ids), len(ids) + len(word)))
                ids += word
            ids += [PAD] if ends or index < len(sentences) - 1 else []
        return Piece(text, ids, self._words(text, spoken), [])

    def _words(self, text: str, spoken: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
        """Give each word of the text its phonemic words: as many as it has by itself, when the sums agree.

        When they do not (a time, a price: words of the text that are read together), in the same proportion.
        """
        words = [(word, self._count(word)) for word in text.split()]
        words = [(word, count) for word, count in words if count]
        scale = len(spoken) / max(1, sum(count for _, count in words))
        spans, at = [], 0
        for word, count in words:
            first, at = min(round(at * scale), len(spoken) - 1), at + count
            end = max(first + 1, round(at * scale))
            spans.append((word, spoken[first][0], spoken[end - 1][1]))
        return spans

    def _count(self, word: str) -> int:
        return sum(len(_runs(self._phonemizer.ids(string)[1:-1])) for string in self._phonemizer.phonemize(word))


def _runs(ids: Sequence[int]) -> list[list[int]]:
    """Split at spaces."""
    runs: list[list[int]] = [[]]
    for phoneme in ids:
        if phoneme == SPACE:
            runs.append([])
        else:
            runs[-1].append(phoneme)
    return [run for run in runs if run]


def _ends_sentence(phonemes: str) -> bool:
    return phonemes.rstrip(QUOTES + " ")[-1:] in tuple(SENTENCE_END)


def greedy(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


@dataclass(frozen=True, slots=True)
class History:
    """The last frames of what was spoken, at most history_frames: conditioning (N, width), codes int64 (N, books)."""

    conditioning: Tensor
    codes: Tensor

    def then(self, conditioning: Tensor, codes: Tensor, limit: int) -> "History":
        grown = torch.cat([self.conditioning, conditioning])[-limit:]
        return History(grown, torch.cat([self.codes, codes])[-limit:])


def no_history(config: TalkerConfig) -> History:
    return History(torch.zeros(0, config.width), torch.zeros(0, config.books, dtype=torch.int64))


@torch.inference_mode()
def generate(lm: CodecLM, history: History, conditioning: Tensor, choose: Choose = greedy) -> Tensor:
    """Speak one chunk: conditioning (K, width) to codes int64 (K, books). One step a frame, with a KV cache.

    The prompt is the history and the first new frame, at positions 0 to N: position t takes the conditioning of frame t
    and the codes of frame t - 1, position 0 the start vector. Its last state gives the first new frame.
    """
    caches = [KvCache() for _ in lm.layers]
    prompt = torch.cat([history.conditioning, conditioning[:1]])
    previous = torch.cat([torch.full((1, lm.config.books), NO_CODE), history.codes])
    at = torch.arange(len(prompt))
    made: list[Tensor] = []
    for index in range(len(conditioning)):
        if made:
            prompt, previous, at = conditioning[index : index + 1], made[-1], at[-1:] + 1
        state = lm.states(lm.inputs(prompt, previous), at, caches)[-1:]
        first = choose(lm.book_logits(state, torch.zeros(1, 0, dtype=torch.int64)))
        made.append(lm.complete(state, first))
    return torch.cat(made) if made else torch.zeros(0, lm.config.books, dtype=torch.int64)
