"""What the words of a caller mean for the turn. Pure; English, as the default recogniser is."""

import re
from collections.abc import Sequence

# Sounds that recognisers write down as they like: mm-hm, mhm, uh-huh, um, er, ah, oh, ha ha.
_SOUND = re.compile(r"(?:m+h*m*|h+m+|h+u+h+|u+h+|u+m+|e+r+m*|a+h+|o+h+|(?:h[ae])+h?|u+g+h+|e+h+|s+h+|p+f+t*)\Z")
# Words after which an English sentence goes on.
_GOES_ON = frozenset(
    "and but or so because if when while that which who whose the a an my your our their his her its this these to of"
    " for from with without about into onto between in on at by as than um uh er erm like is are was were am be been"
    " would could should will can i we they you he she".split()
)
_ENDS_WITH_PRONOUN = re.compile(r"\b(?:about|with|for|of|to|than|and|are|am|is|was|were|can|do|did|will)\s+\w+\Z")
_OPEN_NUMBER = re.compile(r"\b(?:number|code|pin|zip|extension)\b[\s\w]*\b(?:is|it's)\b[\s\d\w,-]*\Z")
_COMMANDS = frozenset("stop wait no hold hang quiet pause enough hey hello listen excuse sorry but actually".split())
_SMALL = frozenset("the a an that this it is and to i you of in on so do be he she we they what oh ta da".split())
LONGEST_NUMBER_WORDS = 6
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


def without_backchannels(text: str, backchannels: Sequence[str]) -> list[str]:
    """The words that are neither a backchannel nor a mere sound."""
    rest = f" {' '.join(word for word in plain(text) if not _SOUND.match(word))} "
    for phrase in sorted(backchannels, key=len, reverse=True):
        spoken = " ".join(plain(phrase))
        while f" {spoken} " in rest:
            rest = rest.replace(f" {spoken} ", " ")
    return rest.split()


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
    spoken = " ".join(words)
    if text.rstrip().endswith("?"):  # the recogniser heard a question's end
        return False
    if words[-1] in _GOES_ON and not _ENDS_WITH_PRONOUN.search(spoken):
        return True
    number = _OPEN_NUMBER.search(spoken)
    return number is not None and len(re.findall(r"\d", number[0])) < LONGEST_NUMBER_WORDS


def asks_to_repeat(text: str) -> bool:
    """Nothing but a wish to hear the last answer again."""
    return _REPEAT.match(" ".join(plain(text))) is not None


def has_words(text: str) -> bool:
    return any(letter.isalnum() for letter in text)
