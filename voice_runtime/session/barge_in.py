"""Whether what is said over the agent means that it should stop. Pure.

Recognisers find words in everything: in coughs, in a crowd, in "mm-hm". How sure they are of them tells these from
words that were said. The figures were chosen on benchmarks/overlaps/tuning.toml.
"""

from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session import phrases
from voice_runtime.session.recognition import Words

SURE = 0.45  # confidence from which words are words; those read in a crowd's noise have 0.25 to 0.6
LEAST_WEAKEST = 0.15  # and no word of them less than this
SHORT_MS = 600  # less voice than this is a word or two, and more often a backchannel than not
SURE_OF_SHORT = 0.68
SURE_OF_PART = 0.60  # of words of which the last may be cut
WEAKEST_OF_PART = 0.25
WORDS_OF_PART = 3


def _said(words: Words, settings: TurnSettings) -> list[str]:
    """The words that are no backchannel; none when the recogniser has made them of a noise."""
    text = words.text or ""
    said = phrases.without_backchannels(text, settings.backchannels)
    return said if phrases.is_latin(text) and phrases.says_something(said) else []


def may_become_interruption(words: Words, settings: TurnSettings) -> bool:
    """Something was read that is no backchannel: with more words it may interrupt."""
    return bool(_said(words, settings))


def interrupts(words: Words, settings: TurnSettings, *, is_all: bool, reply_was_heard: bool = True) -> bool:
    """words: that were recognised. is_all: the caller has fallen silent after them; else the last may be cut.

    reply_was_heard: False when nothing of it was: then it costs nothing to yield, and who speaks may go on with a
    sentence that was taken to be over.
    """
    said = _said(words, settings)
    if len(said) < settings.interrupt_words:
        return False
    if not reply_was_heard:
        return words.confidence >= SURE
    if not is_all:
        clear = words.confidence >= SURE_OF_PART and words.weakest >= WEAKEST_OF_PART
        return clear and len(said) >= max(WORDS_OF_PART, settings.interrupt_words)
    sure = SURE_OF_SHORT if words.voiced_ms < SHORT_MS and not phrases.is_command(said) else SURE
    return words.confidence >= sure and words.weakest >= LEAST_WEAKEST
