"""Write the text that the voice learns to speak: replies of the default thinker, and drills made by rule.

python -m training.text WORK [--replies N] [--part I]: appends to WORK/text/replies-I.jsonl until it holds N replies;
resumable. Parts have their own seeds, so that two processes can write at once.
"""

import argparse
import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import torch

from training import drills
from voice_runtime import assets
from voice_runtime.sglang_backend import cpu_compat

SEED = 4
ROWS = 96
NEW_TOKENS = 64
DRILLS = 5_000
PARTS = 2
VERSES = 4_000
HELD_OUT_REPLIES = 240  # 40 to measure errors on, 200 for the count of dropped words
HELD_OUT_VARIED = 100
RULED = ("drills.jsonl", "verses.jsonl")
SHOTS = (
    ("What color is a tomato?", "A ripe tomato is usually red, but some kinds are yellow or green."),
    ("What is the capital of France?", "The capital of France is Paris, on the river Seine."),
)
TOPICS = """cats|dogs|the moon|the sun|rain|snow|coffee|tea|bread|cheese|pasta|pizza|soup|salad|chocolate|honey|apples
bananas|tomatoes|potatoes|gardening|trees|flowers|roses|bees|ants|spiders|birds|eagles|owls|penguins|whales|sharks|fish
horses|cows|elephants|lions|dinosaurs|volcanoes|earthquakes|rivers|the ocean|mountains|deserts|forests|islands|Africa
Asia|Europe|Australia|Canada|Mexico|Brazil|Japan|China|India|Italy|Spain|Germany|Ireland|Scotland|Egypt|Greece|Russia
New York|London|Paris|Rome|Tokyo|the Eiffel Tower|bridges|castles|museums|libraries|schools|universities|teachers
doctors|nurses|hospitals|medicine|vitamins|sleep|dreams|exercise|running|swimming|cycling|yoga|football|baseball
basketball|tennis|golf|chess|board games|video games|music|jazz|opera|the piano|the guitar|the violin|drums|dancing
painting|drawing|photography|sculpture|movies|theater|books|poetry|novels|newspapers|radio|television|telephones
computers|keyboards|the internet|email|programming|robots|artificial intelligence|satellites|rockets|planets|Mars|stars
black holes|gravity|light|sound|electricity|magnets|batteries|engines|cars|trains|airplanes|ships|bicycles|bridges
money|banks|taxes|insurance|jobs|interviews|meetings|holidays|birthdays|weddings|families|friends|neighbors|children
babies|grandparents|pets|houses|kitchens|bathrooms|bedrooms|furniture|cleaning|laundry|cooking|baking|shopping
clothes
shoes|hats|jewelry|gold|silver|iron|glass|paper|plastic|recycling|pollution|climate|weather|storms|winter|summer|spring
autumn|calendars|clocks|time zones|history|ancient Rome|kings and queens|wars|democracy|elections|laws|police
firefighters|maps|languages|English|French|Spanish|words|letters|numbers|mathematics|geometry|chemistry|biology|physics|atoms|cells
genes|the heart|the brain|eyes|ears|teeth|bones|blood|water|air|fire|ice|sand|salt|sugar|spices|rice|corn|eggs|milk
butter|oranges|lemons|strawberries|camping|hiking|fishing|hotels|airports|passports|tickets|restaurants|waiters|recipes
picnics|parks|zoos|circuses|magic|jokes|stories|fairy tales|dragons|ghosts|pirates|knights|detectives|inventors
Albert Einstein|Isaac Newton|Leonardo da Vinci|William Shakespeare|Mozart|Beethoven|Marie Curie|Abraham Lincoln"""
QUESTIONS = """What is interesting about {}?|Tell me something about {}.|Why are people interested in {}?
How would you explain {} to a child?|What should I know about {}?|Do you like {}?|What is the history of {}?
Give me one tip about {}.|Can you tell me a short story about {}?|What is the biggest problem with {}?
Where can I learn more about {}?|What is the difference between {} and {}?|Why do we need {}?|What do {} and {} share?
How much does it cost to enjoy {}?|When did people first learn about {}?|I am worried about {}. Can you help?
What would the world be without {}?|Tell me a surprising fact about {}.|Who knows the most about {}?
I want to talk about {}.|Give me a joke about {}.|What is your opinion of {}?|How does {} work?
What is the best way to get better at {}?|Is it true that {} can be dangerous?|Can I find {} near my home?
What words describe {}?|How many kinds of {} are there?|Ask me a question about {}."""
SENTENCE = re.compile(r"(?<=[.!?])\s+")
PLAIN = re.compile(r"[A-Za-z0-9 ,.;:!?'$%\"\u2019\u2014-]+")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--replies", type=int, default=4_500)
    arguments.add_argument("--part", type=int, default=0, choices=range(PARTS))
    arguments.add_argument("--verses", type=Path, help='output of Debian\'s `bible -f "Gen1:1-Rev22:21"`')
    options = arguments.parse_args()
    folder = options.work / "text"
    folder.mkdir(parents=True, exist_ok=True)
    _write_drills(folder)
    if options.verses:
        _write_lines(folder / "verses.jsonl", _verses(options.verses))
    write_replies(_part(folder, options.part), options.replies, 1_000_000 * options.part + SEED)


def _write_drills(folder: Path) -> None:
    held_out = drills.sentences(HELD_OUT_VARIED, SEED + 1)
    training = [text for text in dict.fromkeys(drills.sentences(DRILLS, SEED)) if text not in held_out]
    _write_lines(folder / "varied.jsonl", held_out)
    _write_lines(folder / "drills.jsonl", training)


def _verses(path: Path) -> list[str]:
    """Verses of 30 to 200 characters, shuffled. The King James text is in the public domain."""
    lines = [line.partition(" ")[2].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    kept = [line for line in lines if 30 <= len(line) <= 200 and PLAIN.fullmatch(line)]
    random.Random(SEED).shuffle(kept)
    return kept[:VERSES]


def _write_lines(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")


def _part(folder: Path, part: int) -> Path:
    return folder / f"replies-{part}.jsonl"


def write_replies(path: Path, count: int, seed: int) -> None:
    """Append replies to `path` until it holds `count`."""
    torch.set_num_threads(1)
    model, tokenizer = _thinker()
    prefix = _prefix(model, tokenizer)
    known = set(_read(path))
    while len(known) < count:
        torch.manual_seed(seed + len(known))
        questions = _questions(ROWS, seed + len(known))
        fresh = [text for text in _answers(model, tokenizer, prefix, questions) if text and text not in known]
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(text) + "\n" for text in dict.fromkeys(fresh))
        known.update(fresh)
        print(f"replies {len(known)} of {count}", flush=True)


def _read(path: Path) -> list[str]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def training_texts(folder: Path) -> list[list[str]]:
    """Everything that may be learnt, by source; writing more replies only makes lists longer at their ends."""
    replies = [_read(_part(folder, part)) for part in range(PARTS)]
    hidden = {*replies[0][:HELD_OUT_REPLIES], *_read(folder / "varied.jsonl")}
    hidden |= {sentence for text in hidden for sentence in SENTENCE.split(text)}
    sources = [*(_read(folder / name) for name in RULED), replies[0][HELD_OUT_REPLIES:], *replies[1:]]
    return [[text for text in source if text not in hidden] for source in sources]


def held_out(folder: Path) -> tuple[list[str], list[str]]:
    """Return (assistant replies, varied sentences) that no training set holds."""
    return _read(_part(folder, 0))[:HELD_OUT_REPLIES], _read(folder / "varied.jsonl")


def _questions(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    topics = TOPICS.replace("\n", "|").split("|")
    forms = QUESTIONS.replace("\n", "|").split("|")
    return [rng.choice(forms).format(*rng.sample(topics, 2)) for _ in range(count)]


def _thinker() -> tuple[Any, Any]:
    cpu_compat.prepare()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(assets.thinker_folder(progress=False))
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    return model, tokenizer


def _turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def _prefix(model: Any, tokenizer: Any) -> Any:
    """(ids, cache) of the example turns, which every prompt begins with: computed once, one row."""
    from transformers import DynamicCache

    text = "".join(_turn("user", user) + _turn("assistant", answer) for user, answer in SHOTS)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    cache = DynamicCache()
    with torch.inference_mode():
        model(ids, past_key_values=cache, use_cache=True)
    return ids, cache


def _answers(model: Any, tokenizer: Any, prefix: Any, questions: list[str]) -> list[str]:
    ids, cache = prefix
    rows = len(questions)
    asked = [_turn("user", question) + "<|im_start|>assistant\n" for question in questions]
    batch = tokenizer(asked, return_tensors="pt", padding=True)
    prompt = torch.cat([ids.expand(rows, -1), batch["input_ids"]], 1)
    mask = torch.cat([torch.ones_like(ids).expand(rows, -1), batch["attention_mask"]], 1)
    shared = copy.deepcopy(cache)
    shared.batch_repeat_interleave(rows)
    with torch.inference_mode():
        out = model.generate(
            prompt, attention_mask=mask, past_key_values=shared, max_new_tokens=NEW_TOKENS, do_sample=True,
            temperature=0.9, top_k=50, top_p=1.0, pad_token_id=2,
        )  # fmt: skip
    texts = tokenizer.batch_decode(out[:, prompt.shape[1] :], skip_special_tokens=True)
    return [_clean(text) for text in texts]


def _clean(text: str) -> str:
    """Keep the whole sentences of a reply, 12 to 260 characters; empty when there is none that can be read aloud."""
    parts = SENTENCE.split(" ".join(text.split()))
    whole = [part for part in parts if part and part[-1] in ".!?" and PLAIN.fullmatch(part)]
    kept = ""
    for part in whole:
        if len(kept) + len(part) > 260:
            break
        kept = f"{kept} {part}".strip()
    return kept if len(kept) >= 12 else ""


if __name__ == "__main__":
    main()
