"""What the words of a caller mean for the turn. Pure; English, as the default recogniser is."""

import re
from collections.abc import Sequence

# Sounds that recognisers write down as they like: mm-hm, mhm, uh-huh, um, er, ah, oh, ha ha.
_SOUND = re.compile(r"(?:m+h*m*|h+m+|h+u+h+|u+h+|u+m+|e+r+m*|a+h+|o+h+|(?:h[ae])+h?|u+g+h+|e+h+|s+h+|p+f+t*)\Z")
# Words that end no English sentence, not even one that the recogniser has put a question mark after.
_NEVER_LAST = frozenset("and but or because if than the a an my your our whose every um uh er i".split())
# Words that end one only as a question ("where are you from?") or, the verbs, after a pronoun ("I know where it is").
_PREPOSITIONS = frozenset("to of for from with without about into onto between in on at by as like".split())
_VERBS = frozenset("is are was were am be been would could should will can".split())
_PRONOUNS = frozenset("i it he she they we you that this there".split())
_COMMANDS = frozenset("stop wait no hold hang quiet pause enough hey hello listen excuse sorry but actually".split())
_SMALL = frozenset("the a an that this it is and to i you of in on so do be he she we they what oh ta da".split())
# Openings that want an object, whole sentences as they may look to a recogniser.
_OPENING = re.compile(
    r"(?:(?:so|and|um|uh|well|okay|hello|hi|please|also) )*(?:(?:can|could|would|will) you (?:please )?"
    r"(?:tell|show|give|explain|help|say)(?: me)?|(?:do|did) you know|tell me|i wonder|i was wondering"
    r"|i(?:'d| would) like(?: to (?:know|ask|have))?|i want(?: to (?:know|ask|have))?|what about|how about)\Z"
)
_DIGIT = (
    r"(?:\d+|oh|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty"
    r"|sixty|seventy|eighty|ninety|hundred|thousand|double|triple)"
)
_OPEN_NUMBER = re.compile(rf"\b(?:number|code|pin|zip|extension)\b[\s\w]*?\b(?:is|it's)((?: {_DIGIT})*)\Z")
LONGEST_NUMBER_DIGITS = 6
_REPEAT = re.compile(
    r"(?:(?:sorry|pardon|excuse me|please|what|wait|hey) )*"
    r"(?:(?:can|could|would|will) you (?:please )?)?"
    r"(?:repeat (?:that|it|what you said|yourself)|say (?:that|it) (?:again|once more)|what did you (?:just )?say"
    r"|what was that|come again|i beg your pardon|pardon(?: me)?|once more|one more time)"
    r"(?: please| again)*\Z"
)


def plain(text: str) -> list[str]:
    """The words in small letters, without punctuation; a hyphen parts two words."""
    letters = re.sub(r"[^\w\s']", " ", text.lower().replace("\u2019", "'"))
    return [word for word in letters.split() if any(letter.isalnum() for letter in word)]


def without_backchannels(text: str, backchannels: Sequence[str]) -> list[str]:
    """The words that are neither a backchannel nor a mere sound."""
    rest = _padded(text)
    for phrase in sorted(backchannels, key=len, reverse=True):
        while (spoken := _padded(phrase)) in rest:
            rest = rest.replace(spoken, " ")
    return rest.split()


def _padded(text: str) -> str:
    """The words that are no mere sounds, each between two spaces."""
    return f" {' '.join(word for word in plain(text) if not _SOUND.match(word))} "


def is_command(words: Sequence[str]) -> bool:
    """It asks the agent to be silent, in a word."""
    return any(word in _COMMANDS for word in words)


def says_something(words: Sequence[str]) -> bool:
    """There is more than what a recogniser makes of a cough: one small word."""
    return any(word not in _SMALL for word in words)


def is_unfinished(text: str) -> bool:
    """The sentence, as far as it goes, wants more words."""
    words = plain(text)
    if not words:
        return False
    is_question = text.rstrip().endswith("?")
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _NEVER_LAST or (last in _PREPOSITIONS and not is_question):
        return True
    if last in _VERBS and not is_question and before not in _PRONOUNS:
        return True
    if _OPENING.match(" ".join(words)):
        return True
    number = _OPEN_NUMBER.search(" ".join(words))
    return number is not None and len(re.findall(r"\d|[a-z]+", number[1])) < LONGEST_NUMBER_DIGITS


def asks_to_repeat(text: str) -> bool:
    """Nothing but a wish to hear the last answer again."""
    return _REPEAT.match(" ".join(plain(text))) is not None


def has_words(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def is_latin(text: str) -> bool:
    """No notes, no signs, no other script: those are what a recogniser writes for music and coughs."""
    return all(letter.isascii() or "\u00c0" <= letter <= "\u024f" or letter in "\u2018\u2019\u2026" for letter in text)
