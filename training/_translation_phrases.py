"""Phrases written to train the translator on, and a small German grammar that makes sentences of words.

Words, sentences and frames with gaps are in ``translation_phrases.txt``. Here is what German asks of a word that fills a gap:
gender, case, the endings of adjectives, and the place of the verb.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GREETINGS = {
    "Good morning": "Guten Morgen",
    "Good evening": "Guten Abend",
    "Good afternoon": "Guten Tag",
    "Good day": "Guten Tag",
    "Good night": "Gute Nacht",
    "Hello": "Hallo",
    "Welcome": "Willkommen",
    "Goodbye": "Auf Wiedersehen",
    "Thank you": "Danke",
    "Thank you very much": "Vielen Dank",
    "See you tomorrow": "Bis morgen",
}

ADDRESSES = {
    "ladies and gentlemen": "meine Damen und Herren",
    "ladies": "meine Damen",
    "gentlemen": "meine Herren",
    "everyone": "alle zusammen",
    "my friend": "mein Freund",
    "my friends": "meine Freunde",
    "my dear colleagues": "liebe Kollegen",
    "children": "Kinder",
    "Tom": "Tom",
    "Mr. Miller": "Herr Müller",
    "Mrs. Schmidt": "Frau Schmidt",
    "": "",
}
"""Who is greeted, with each of the greetings."""

BEFORE = {
    "der": ("der", "die", "das"),
    "den": ("den", "die", "das"),
    "dem": ("dem", "der", "dem"),
    "ein": ("ein", "eine", "ein"),
    "einen": ("einen", "eine", "ein"),
    "einem": ("einem", "einer", "einem"),
    "kein": ("kein", "keine", "kein"),
    "keinen": ("keinen", "keine", "kein"),
    "mein": ("mein", "meine", "mein"),
    "meinen": ("meinen", "meine", "mein"),
    "dein": ("dein", "deine", "dein"),
    "deinen": ("deinen", "deine", "dein"),
    "sein": ("sein", "seine", "sein"),
    "seinen": ("seinen", "seine", "sein"),
    "ihren": ("ihren", "ihre", "ihr"),
    "unser": ("unser", "unsere", "unser"),
    "unseren": ("unseren", "unsere", "unser"),
    "dieser": ("dieser", "diese", "dieses"),
    "diesen": ("diesen", "diese", "dieses"),
    "welcher": ("welcher", "welche", "welches"),
    "zum": ("zum", "zur", "zum"),
    "im": ("im", "in der", "im"),
    "er": ("er", "sie", "es"),
    "ihn": ("ihn", "sie", "es"),
    "-er": ("er", "e", "es"),
    "-e": ("e", "e", "e"),
    "-en": ("en", "e", "es"),
    "-e/n": ("en", "e", "e"),
}
"""What a word in braces becomes with a masculine, feminine and neuter noun; with a hyphen, the ending of the adjective."""

INSIDE = "bakery bank bathroom bedroom cellar church cinema city classroom factory forest garage garden hospital hotel house"
INSIDE += (
    " kitchen library living_room museum office park restaurant room school shop supermarket swimming_pool theatre village zoo"
)
"""Places that one is "in"; "_" stands for a space."""

UPON = "chair table bed sofa armchair desk shelf cupboard plate box"
LYING = "apple book bag ball key letter newspaper pen picture knife fork spoon hat coat shirt map photo blanket camera cat"
NUMBERS = "two|zwei three|drei four|vier five|fünf six|sechs seven|sieben eight|acht nine|neun ten|zehn many|viele"
OFTEN = "every day|jeden Tag;every morning|jeden Morgen;every evening|jeden Abend;today|heute;on Sundays|sonntags;now|jetzt"
AGO = "yesterday|gestern;last week|letzte Woche;last night|gestern Abend;on Monday|am Montag;this morning|heute Morgen"
AHEAD = "tomorrow|morgen;tonight|heute Abend;next week|nächste Woche;on Saturday|am Samstag;today|heute"


@cache
def table(section: str) -> list[list[str]]:
    """A section of ``translation_phrases.txt``: its lines, split at their bars."""
    text = Path(__file__).with_name("translation_phrases.txt").read_text(encoding="utf-8")
    lines = text.split(f"\n[{section}]\n")[1].split("\n\n")[0].splitlines()
    return [line.split("|") for line in lines if not line.startswith("#")]


def phrases() -> list[tuple[str, str]]:
    """Every greeting to everyone, the sentences and the small words: (English, German)."""
    greeted = [
        (f"{hello}, {name}!" if name else f"{hello}!", f"{hallo}, {wer}!" if wer else f"{hallo}!")
        for hello, hallo in GREETINGS.items()
        for name, wer in ADDRESSES.items()
    ]
    return [*greeted, *((line[0], line[1]) for line in table("sentences") + table("words"))]


@dataclass(frozen=True)
class Noun:
    """A noun: its gender is "m", "f" or "n"; a plural may be "" for none."""

    english: str
    gender: str
    german: str
    plural: str
    plurals: str

    def before(self, form: str) -> str:
        """What a word of ``BEFORE`` becomes, with its capital if it has one."""
        word = BEFORE[form.lower()]["mfn".index(self.gender)]
        return word if form.islower() or form[0] == "-" else word[0].upper() + word[1:]


@dataclass(frozen=True)
class Action:
    """What somebody does, in English (to, he, past) and in German."""

    base: str
    third: str
    past: str
    what: str
    infinitive: str
    ich: str
    du: str
    er: str
    perfect: str

    def english(self, person: str) -> str:
        """The English verb with its object, in the present."""
        return self.third if person == "er" else self.base

    def finite(self, person: str, middle: str = "") -> str:
        """In a main clause, from the verb on, something put behind the verb: "trinke jeden Tag Kaffee"."""
        verb, _, prefix = self.form(person).partition(" ... ")
        return " ".join(filter(None, (verb, middle, self.what, prefix)))

    def form(self, person: str) -> str:
        """The verb, with "..." between its parts if it has two: "stehe ... auf"."""
        if person != "wir":
            return str(getattr(self, person))
        prefix = self.ich.partition(" ... ")[2]
        return f"{self.infinitive.removeprefix(prefix).strip()} ... {prefix}" if prefix else self.infinitive

    def last(self, person: str) -> str:
        """In a subordinate clause: "Kaffee trinke", "früh aufstehe"."""
        verb, _, prefix = self.form(person).partition(" ... ")
        space = " " if f"{prefix} " in self.infinitive else ""
        return f"{self.what} {prefix}{space}{verb}".strip()

    def whole(self) -> str:
        """The infinitive with its object: "Kaffee trinken"."""
        return f"{self.what} {self.infinitive}".strip()

    def done(self) -> str:
        """The participle with its object: "Kaffee getrunken"."""
        return f"{self.what} {self.perfect.partition(' ')[2]}".strip()

    def auxiliary(self, person: str) -> str:
        """The form of "haben" or "sein" that goes with the participle."""
        forms = {"hat": ("habe", "hast", "hat", "haben"), "ist": ("bin", "bist", "ist", "sind")}
        return forms[self.perfect.partition(" ")[0]][("ich", "du", "er", "wir").index(person)]


def _nouns(*names: str) -> list[Noun]:
    lines = [line for name in names for line in table(name)]
    return [Noun(*line[:4], line[4] if len(line) > 4 else line[0] + ("s" if line[3] else "")) for line in lines]


def _split(text: str) -> list[list[str]]:
    return [one.split("|") for one in text.split(";")]


class Grammar:
    """Makes (English, German) sentences by chance."""

    def __init__(self) -> None:
        self.nouns = _nouns("things", "people", "animals", "places", "others")
        self.things, people, places = _nouns("things"), _nouns("people"), _nouns("places")
        named = {noun.english.replace(" ", "_"): noun for noun in self.nouns}
        inside, upon, lying = ([named[name] for name in names.split()] for names in (INSIDE, UPON, LYING))
        self.counted = [n for n in _nouns("things", "animals", "people") if n.plural]
        self.frames = [
            (table("frames about things"), [_nouns("things", "animals", "places")]),
            (table("frames about people"), [people]),
            (table("frames about places"), [places]),
            (table("frames inside places"), [inside]),
            (table("frames of things on others"), [lying, upon]),
        ]
        self.actions = [Action(*line) for line in table("actions")]
        self.subjects, self.modals = table("subjects"), table("modal verbs")
        self.fillers = {"adj": table("adjectives"), "feel": table("feelings"), "more": table("comparatives")}

    def sentence(self, rng: random.Random) -> tuple[str, str]:
        """One of all kinds."""
        make = rng.choices((self.framed, self.acted, self.counting, self.named), (40, 40, 8, 12))[0]
        english, german = make(rng)
        return with_articles(english), german

    def named(self, rng: random.Random) -> tuple[str, str]:
        """A noun, or two of them, alone or with articles."""
        some = [self._article(rng.choice(self.nouns), rng) for _ in range(rng.choice((1, 1, 2)))]
        return " and ".join(a for a, _ in some), " und ".join(b for _, b in some)

    def _article(self, noun: Noun, rng: random.Random) -> tuple[str, str]:
        chance = rng.random()
        if chance < 0.3:
            return noun.english, noun.german
        if chance < 0.6 and noun.plural:
            return f"a {noun.english}", f"{noun.before('ein')} {noun.german}"
        if chance < 0.75 and noun.plural:
            return f"the {noun.plurals}", f"die {noun.plural}"
        return f"the {noun.english}", f"{noun.before('der')} {noun.german}"

    def counting(self, rng: random.Random) -> tuple[str, str]:
        """So many of them."""
        english, german = rng.choice(table("frames of numbers"))
        number, zahl = rng.choice(NUMBERS.split()).split("|")
        noun = rng.choice(self.counted)
        return (
            english.replace("{n}", number).replace("{}", noun.plurals),
            german.replace("{n}", zahl).replace("{}", noun.plural),
        )

    def framed(self, rng: random.Random) -> tuple[str, str]:
        """A frame with nouns, and with adjectives where it has room for them."""
        frames, lists = rng.choices(self.frames, (45, 25, 10, 10, 10))[0]
        english, german = rng.choice(frames)
        for gap, table in self.fillers.items():
            for _ in range(english.count(f"{{{gap}}}")):
                ours, theirs, *inner = rng.choice(table)
                english = english.replace(f"{{{gap}}}", ours, 1)
                stem = inner[0].removesuffix("e") if inner else theirs
                german = re.sub(
                    rf"\{{{gap}(-?)\}}", lambda found, stem=stem, whole=theirs: stem if found[1] else whole, german, count=1
                )
        if "{thing}" in english:
            thing = rng.choice(self.things)
            english, german = (
                english.replace("{thing}", thing.english),
                german.replace("{thing}", f"{thing.before('dem')} {thing.german}"),
            )
        for i in range(english.count("{}")):
            noun = rng.choice(lists[min(i, len(lists) - 1)])
            english = english.replace("{}", noun.english, 1)
            head, tail = german.split("{}", 1)
            head = head.replace("{von}", "vom" if noun.gender != "f" else "von der")
            german = re.sub(r"\{([\w/-]+)\}", lambda found, noun=noun: noun.before(found[1]), head) + noun.german + tail
        return english, german

    def acted(self, rng: random.Random) -> tuple[str, str]:
        """Somebody does something: now and then, in the past, soon, with a modal verb, asked, or as a reason."""
        subject = rng.choice(self.subjects)
        action, other = rng.sample(self.actions, 2)
        make = rng.choices(
            ("plain", "often", "past", "ahead", "modal", "both", "asked", "because", "two"), (1, 1, 2, 1, 2, 2, 1, 1, 1)
        )[0]
        if make in ("modal", "both"):
            found = self._modal(subject, action, other if make == "both" else None, rng)
        elif make == "asked":
            found = _asked(action, rng)
        elif make == "because":
            found = _because(subject, action, rng)
        elif make == "two":
            found = self._two(subject, action, other, rng)
        else:
            found = _told(subject, action, make, rng)
        english, german = found
        return english[0].upper() + english[1:], german[0].upper() + german[1:]

    def _modal(self, subject: list[str], action: Action, other: Action | None, rng: random.Random) -> tuple[str, str]:
        """What somebody wants, can or must do; "nicht" stands behind an object with its article."""
        who, wer, person = subject
        modal = rng.choice(self.modals)
        can, kann = modal[person == "er"], modal[{"ich": 2, "er": 4, "wir": 5}[person]]
        if can == "cannot":
            action = rng.choice([a for a in self.actions if re.match(r"(die|den|das|dem|ihn|uns)\b", a.what)])
            return f"{who} cannot {action.base}.", f"{wer} {kann} {action.what} nicht {action.infinitive}."
        if other is None:
            return f"{who} {can} {action.base}.", f"{wer} {kann} {action.whole()}."
        return f"{who} {can} {action.base} and {other.base}.", f"{wer} {kann} {action.whole()} und {other.whole()}."

    def _two(self, subject: list[str], action: Action, other: Action, rng: random.Random) -> tuple[str, str]:
        """Somebody does one thing, and somebody another."""
        who, wer, person = subject
        second, zweite, them = rng.choice(self.subjects)
        return (
            f"{who} {action.english(person)} and {second} {other.english(them)}.",
            f"{wer} {action.finite(person)} und {zweite} {other.finite(them)}.",
        )


def _told(subject: list[str], action: Action, make: str, rng: random.Random) -> tuple[str, str]:
    """A statement: "plain", or with a time ("often", "past", "ahead")."""
    who, wer, person = subject
    if make == "plain":
        return f"{who} {action.english(person)}.", f"{wer} {action.finite(person)}."
    if make == "often":
        when, wann = rng.choice(_split(OFTEN))
        return f"{who} {action.english(person)} {when}.", f"{wer} {action.finite(person, wann)}."
    if make == "past":
        when, wann = rng.choice(_split(AGO))
        return f"{who} {action.past} {when}.", f"{wer} {action.auxiliary(person)} {wann} {action.done()}."
    when, wann = rng.choice(_split(AHEAD))
    will = {"ich": "werde", "er": "wird", "wir": "werden"}[person]
    if rng.random() < 0.4:
        return f"{who} will {action.base} {when}.", f"{wer} {will} {wann} {action.whole()}."
    return f"{when} {who} will {action.base}.", f"{wann} {will} {wer} {action.whole()}."


def _asked(action: Action, rng: random.Random) -> tuple[str, str]:
    """A question to somebody one knows."""
    return rng.choice(
        (
            (f"do you {action.base}?", f"{action.finite('du', 'du')}?"),
            (f"do you want to {action.base}?", f"willst du {action.whole()}?"),
            (f"can you {action.base}?", f"kannst du {action.whole()}?"),
            (f"can we {action.base}?", f"können wir {action.whole()}?"),
            (f"did you {action.base}?", f"{action.auxiliary('du')} du {action.done()}?"),
        )
    )


def _because(subject: list[str], action: Action, rng: random.Random) -> tuple[str, str]:
    """How somebody is, and why: the verb stands last."""
    who, wer, person = subject
    feel, wie = rng.choice((("happy", "glücklich"), ("tired", "müde"), ("here", "hier"), ("at home", "zu Hause")))
    be, bin_ = {"ich": ("am", "bin"), "er": ("is", "ist"), "wir": ("are", "sind")}[person]
    again, wieder = (who, wer) if who in ("I", "we", "they", "he", "she") else ("Mary", "Maria")
    one = person if again == who else "er"
    return f"{who} {be} {feel} because {again} {action.english(one)}.", f"{wer} {bin_} {wie}, weil {wieder} {action.last(one)}."


def with_articles(english: str) -> str:
    """A text with "a" or "an" as the next word wants it."""
    english = re.sub(r"\b([Aa]) (?=[aeiou](?!ni)|hour)", r"\1n ", english)
    return re.sub(r"\b([Aa])n (?=[b-df-hj-np-tv-z](?!our)|uni)", r"\1 ", english)
