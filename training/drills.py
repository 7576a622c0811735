"""Sentences made by rule: numbers, dates, times, names, spelling, questions, short replies. All words are our own."""

import random
from collections.abc import Callable

NAMES = """Anna Ben Carla David Emma Felix Grace Henry Isabel Jack Kate Liam Maria Noah Olivia Paul Quinn Rosa Samuel
Tina Victor Wendy Xavier Yara Zoe Alice Brian Chloe Daniel Elena Frank Gloria Hugo Irene James Laura Michael Nina Oscar
Peter Rachel Steven Thomas Ursula Vincent William Priya Ahmed Yuki Chen Sofia Diego Fatima Ivan Leila Marcus""".split()
SURNAMES = """Smith Johnson Brown Miller Davis Wilson Moore Taylor Anderson Jackson White Harris Martin Thompson Garcia
Martinez Robinson Clark Lewis Walker Young King Wright Scott Green Baker Adams Nelson Carter Mitchell Roberts Turner
Phillips Campbell Parker Evans Edwards Collins Stewart Morris Murphy Cook Rogers Peterson Cooper Reed Bailey""".split()
PLACES = """London Paris Berlin Madrid Rome Vienna Boston Chicago Denver Seattle Toronto Sydney Tokyo Lisbon Dublin
Oslo Prague Athens Cairo Nairobi Mumbai Singapore Houston Phoenix Portland Atlanta Brooklyn Geneva Munich
Amsterdam Brussels Helsinki Warsaw Budapest Istanbul Jakarta Bangkok Lima Bogota Montreal""".split()
MONTHS = """January February March April May June July August September October November December""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
THINGS = """table window kitchen garden ticket letter camera bottle blanket hammer guitar bicycle umbrella mirror
sandwich package basket candle jacket notebook keyboard battery ladder pillow suitcase wallet telephone printer lamp
chair carpet bucket coffee bread cheese orange potato onion pepper lemon cabbage chicken butter sugar salad""".split()
ADJECTIVES = """small large old new red blue green yellow heavy light quiet noisy broken clean dirty warm cold soft
wooden plastic expensive cheap narrow wide bright dark empty full strange familiar beautiful ordinary""".split()
VERBS = """find bring open close carry clean repair paint borrow return sell buy wash hide move count check order
cancel deliver weigh describe choose forget remember replace""".split()
SUBJECTS = """I you we they he she it everyone nobody the teacher the doctor my brother your sister the driver
the children our neighbor the waiter the manager the engineer""".replace("\n", " ")
PEOPLE = ["I", "you", "we", "they", "the teachers", "my brothers", "the children", "our neighbors", "the engineers"]
ADVERBS = "today tomorrow tonight now later soon again quickly slowly carefully together already often".split()
SHORT = """Yes.|No.|Sure.|Okay.|Of course.|Thank you.|You are welcome.|Good morning.|Good night.|Hello there.|Goodbye!
Great!|Sorry about that.|I see.|One moment, please.|Let me check.|That is right.|Not really.|Maybe.|I think so.
I don't know.|How can I help you?|Anything else?|See you soon.|Well done!
Could you repeat that?|What do you mean?
Sounds good.|No problem.|Absolutely.|Exactly.|Never mind.|Take care.|Please wait.|Go ahead.|I'm listening.|Not yet.
Hi, how are you?|Fine, thanks.|Have a nice day.|Nice to meet you.|Congratulations!|Welcome back.|I'm not sure.
All right.|Let's try again.|Are you still there?|I didn't catch that.|Say that again, please.|Good question.
That's all.|Done."""
Rule = Callable[[random.Random], str]


def _spelled(rng: random.Random) -> str:
    word = rng.choice(NAMES + SURNAMES + THINGS)
    letters = ", ".join(word.upper()) if rng.random() < 0.5 else " ".join(word.upper())
    return rng.choice([f"{word} is spelled {letters}.", f"Spell it like this: {letters}.", f"That is {letters}."])


def _digits(rng: random.Random, count: int) -> str:
    return " ".join(str(rng.randrange(10)) for _ in range(count))


def _telephone(rng: random.Random) -> str:
    groups = ", ".join(_digits(rng, n) for n in (3, 3, 4))
    return rng.choice([f"The number is {groups}.", f"Call me at {groups}.", f"Dial {groups}, please."])


def _count(rng: random.Random) -> int:
    return rng.choice(
        [rng.randrange(2, 20), rng.randrange(2, 100), rng.randrange(100, 1000), rng.randrange(1000, 99999)]
    )


def _number(rng: random.Random) -> str:
    n = _count(rng)
    thing = rng.choice(THINGS)
    return rng.choice(
        [
            f"There are {n:,} people in {rng.choice(PLACES)} who need a {thing}.",
            f"We counted {n} of them.",
            f"It costs {rng.randrange(1, 200)} dollars and {rng.randrange(1, 100)} cents.",
            f"The {thing} is ${rng.randrange(1, 900)}.{rng.randrange(10, 100)}.",
            f"That is {rng.randrange(1, 100)} percent of {n}.",
            f"{rng.randrange(2, 50)} plus {rng.randrange(2, 50)} is {rng.randrange(4, 100)}.",
            f"{rng.randrange(2, 13)} times {rng.randrange(2, 13)} equals {rng.randrange(4, 145)}.",
            f"The distance is {rng.randrange(1, 100)}.{rng.randrange(1, 10)} kilometers, or about {n} miles.",
            f"Your order number is {_digits(rng, rng.randrange(4, 8))}.",
            f"It weighs {rng.randrange(2, 400)} pounds and is {rng.randrange(2, 90)} inches wide.",
            f"Room {rng.randrange(100, 900)} is on floor {rng.randrange(1, 40)}.",
        ]
    )


def _date(rng: random.Random) -> str:
    month, day, year = rng.choice(MONTHS), rng.randrange(1, 29), rng.randrange(1750, 2035)
    return rng.choice(
        [
            f"{rng.choice(NAMES)} was born on {month} {day}, {year}.",
            f"The meeting is on {rng.choice(DAYS)}, {month} {day}.",
            f"It opened in {year} and closed in {year + rng.randrange(2, 60)}.",
            f"See you on the {day}{_ordinal(day)} of {month}.",
            f"{month} {year} was very {rng.choice(['warm', 'cold', 'wet', 'dry', 'busy'])}.",
        ]
    )


def _ordinal(day: int) -> str:
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day not in (11, 12, 13) else 0, "th")


def _time(rng: random.Random) -> str:
    clock = f"{rng.randrange(1, 13)}:{rng.randrange(0, 60):02d}"
    half = rng.choice(["a.m.", "p.m.", "in the morning", "in the evening", ""]).strip()
    at = f"{clock} {half}".strip()
    return rng.choice(
        [
            f"The train to {rng.choice(PLACES)} leaves at {at}".rstrip(".") + ".",
            f"It is {clock} now.",
            f"Wake me up at {at}".rstrip(".") + ".",
            f"Your alarm is set for {at} on {rng.choice(DAYS)}.",
            f"The timer has {rng.randrange(2, 60)} minutes and {rng.randrange(2, 60)} seconds left.",
        ]
    )


def _person(rng: random.Random) -> str:
    return f"{rng.choice(NAMES)} {rng.choice(SURNAMES)}"


def _name(rng: random.Random) -> str:
    title = rng.choice(["Mr.", "Mrs.", "Dr.", "Professor"])
    return rng.choice(
        [
            f"My name is {_person(rng)} and I live in {rng.choice(PLACES)}.",
            f"{_person(rng)} sent you a message.",
            f"{title} {rng.choice(SURNAMES)} will see you on {rng.choice(DAYS)}.",
            f"{rng.choice(NAMES)}, {rng.choice(NAMES)} and {rng.choice(NAMES)} flew from {rng.choice(PLACES)} "
            f"to {rng.choice(PLACES)}.",
            f"Please ask {_person(rng)} about the {rng.choice(THINGS)}.",
        ]
    )


def _noun(rng: random.Random) -> str:
    return f"{rng.choice(ADJECTIVES)} {rng.choice(THINGS)}"


def _question(rng: random.Random) -> str:
    who, verb, noun = rng.choice(PEOPLE), rng.choice(VERBS), _noun(rng)
    return rng.choice(
        [
            f"Where did {who} {verb} the {noun}?",
            f"Why would {who} {verb} a {rng.choice(THINGS)} {rng.choice(ADVERBS)}?",
            f"Can {who} {verb} the {noun} {rng.choice(ADVERBS)}?",
            f"How many {rng.choice(THINGS)}s did {who} {verb}?",
            f"Is the {rng.choice(THINGS)} {rng.choice(ADJECTIVES)} or {rng.choice(ADJECTIVES)}?",
            f"When will {who} {verb} it, {rng.choice(NAMES)}?",
            f"Which {rng.choice(THINGS)} should {who} {verb}: the {rng.choice(ADJECTIVES)} one or the "
            f"{rng.choice(ADJECTIVES)} one?",
        ]
    )


def _statement(rng: random.Random) -> str:
    who, verb = rng.choice(PEOPLE), rng.choice(VERBS)
    return rng.choice(
        [
            f"{who.capitalize()} will {verb} the {_noun(rng)} {rng.choice(ADVERBS)}.",
            f"The {_noun(rng)} is next to the {_noun(rng)}.",
            f"If {who} {verb} the {rng.choice(THINGS)}, put it on the {_noun(rng)}.",
            f"First {verb} the {rng.choice(THINGS)}, then {rng.choice(VERBS)} the {_noun(rng)}.",
            f"{rng.choice(NAMES)} said that {who} should {verb} a {_noun(rng)}.",
            f"Please {verb} the {_noun(rng)} {rng.choice(ADVERBS)}.",
            f"You need {rng.randrange(2, 12)} {rng.choice(THINGS)}s, a {_noun(rng)}, and some {rng.choice(THINGS)}.",
        ]
    )


def _short(rng: random.Random) -> str:
    return rng.choice(SHORT.replace("\n", "|").split("|"))


RULES: tuple[Rule, ...] = (_spelled, _telephone, _number, _number, _date, _time, _name, _question, _statement, _short)


def sentences(count: int, seed: int) -> list[str]:
    """Return `count` utterances of one or two rule-made sentences; the same seed gives the same ones."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        parts = [rng.choice(RULES)(rng) for _ in range(1 if rng.random() < 0.7 else 2)]
        made.append(" ".join(parts))
    return made
