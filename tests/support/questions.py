"""Twenty everyday questions for the default pipeline. Written before any model answered them, and not changed since:
a list that is tuned to the model measures nothing."""

import re
from dataclasses import dataclass

from tests.support.speech import Voice


@dataclass(frozen=True, slots=True)
class Question:
    """A question to be spoken by `voice`; any one of `keywords` in a reply makes it right."""

    text: str
    voice: Voice
    keywords: tuple[str, ...]

    def is_answered_by(self, reply: str) -> bool:
        """Whether any keyword stands in `reply` as whole words, in any case."""
        return any(re.search(rf"\b{re.escape(keyword)}\b", reply, re.IGNORECASE) for keyword in self.keywords)


QUESTIONS: tuple[Question, ...] = (
    Question("What is the capital of Italy?", "flite", ("Rome",)),
    Question("What is the opposite of hot?", "festival", ("cold", "cool")),
    Question("How many days are there in a week?", "espeak-ng", ("seven", "7")),
    Question("What color is the sky on a clear day?", "flite", ("blue",)),
    Question("Which animal says meow?", "festival", ("cat", "cats", "kitten", "kittens")),
    Question("What is two plus two?", "espeak-ng", ("four", "4")),
    Question("Which planet do we live on?", "flite", ("Earth",)),
    Question("What day comes after Monday?", "festival", ("Tuesday",)),
    Question("What is the capital of Japan?", "espeak-ng", ("Tokyo",)),
    Question("How many legs does a dog have?", "flite", ("four", "4")),
    Question("What do bees make?", "festival", ("honey", "beeswax", "wax")),
    Question("What is the largest ocean on Earth?", "espeak-ng", ("Pacific",)),
    Question("What is frozen water called?", "flite", ("ice",)),
    Question("Which month comes after June?", "festival", ("July",)),
    Question("What is the opposite of big?", "espeak-ng", ("small", "little", "tiny")),
    Question("What does a baker make?", "flite", ("bread", "cake", "cakes", "pastry", "pastries", "cookies")),
    Question("What is the closest star to Earth?", "festival", ("Sun",)),
    Question("How many months are there in a year?", "espeak-ng", ("twelve", "12")),
    Question("What do we call a person who teaches in a school?", "flite", ("teacher", "teachers", "educator")),
    Question("What color is grass?", "festival", ("green",)),
)
