"""What the words of a caller mean for the turn. Pure; English, as the default recogniser is."""

import re
from collections.abc import Sequence
from typing import Literal

Meaning = Literal["nothing", "backchannel", "words"]

# Sounds that recognisers write down as they like: mm-hm, mhm, uh-huh, um, er, ah, oh, ha ha.
_SOUND = re.compile(r"(?:m+h*m*|h+m+|h+u+h+|u+h+|u+m+|e+r+m*|a+h+|o+h+|(?:h[ae])+h?|u+g+h+|e+h+|s+h+|p+f+t*)\Z")
# Words after which an English sentence goes on.
_GOES_ON = frozenset(
    "and but or so because if when while that which who whose the a an my your our their his her its this these to of"
    " for from with without about into onto between in on at by as than um uh er erm like is are was were am be been"
    " would could should will can i we they you he she".split()
)
# But not here: "how are you", "tell me about her", "thank you", "I think so".
_ENDS_ALL_THE_SAME = re.compile(
    r"(?:\b(?:about|with|for|of|to|than|like|are|am|is|was|were|thank|love|see|call|tell|ask|help|hear|know|need|want)"
    r" (?:you|her|this|these|that|i|we|they|he|she)|\b(?:is|was) his|\band you"
    r"|\b(?:think|hope|guess|suppose|believe|say|said|not|why) so)\Z"
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
    return re.sub(r"[^\w\s']", " ", text.lower().replace("\u2019", "'")).split()


def meaning(text: str, backchannels: Sequence[str], least_words: int) -> Meaning:
    """What was said over the agent: "words" when at least `least_words` are no backchannel."""
    words = plain(text)
    rest = f" {' '.join(word for word in words if not _SOUND.match(word))} "
    for phrase in sorted(backchannels, key=len, reverse=True):
        spoken = " ".join(plain(phrase))
        while f" {spoken} " in rest:
            rest = rest.replace(f" {spoken} ", " ")
    if len(rest.split()) >= least_words:
        return "words"
    return "backchannel" if words else "nothing"


def is_unfinished(text: str) -> bool:
    """The sentence, as far as it goes, wants more words."""
    words = plain(text)
    if not words:
        return False
    spoken = " ".join(words)
    if text.rstrip().endswith("?"):  # the recogniser heard a question's end
        return False
    if words[-1] in _GOES_ON and not _ENDS_ALL_THE_SAME.search(spoken):
        return True
    number = _OPEN_NUMBER.search(spoken)
    return number is not None and len(re.findall(r"\d|[a-z]+", number[1])) < LONGEST_NUMBER_DIGITS


def asks_to_repeat(text: str) -> bool:
    """Nothing but a wish to hear the last answer again."""
    return _REPEAT.match(" ".join(plain(text))) is not None


def has_words(text: str) -> bool:
    return any(letter.isalnum() for letter in text)
