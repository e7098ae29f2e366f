"""What the translator is trained on: three sources read into pairs of texts, held-out sentences kept apart, variants made."""

from __future__ import annotations

import hashlib
import html
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from _translation_everyday import ADDRESSES, BEFORE, FRAMES, GREETINGS, PLACES, SENTENCES, WAYS

SHORT = {"sth.": "something", "sb.": "somebody", "sb.'s": "somebody's", "sth.'s": "something's"}
KURZ = {"etw.": "etwas", "jdn.": "jemanden", "jdm.": "jemandem", "jd.": "jemand", "jds.": "jemandes"}
SPOKEN = {"n't": " not", "'m": " am", "'re": " are", "'ve": " have", "'ll": " will", "'s": " is", "'d": " would"}
NAMES = ("[ornith.]", "[min.]", "[chem.]", "(zoologische ", "(botanische ")  # species and substances: not for short sentences
ARTICLES = {"m": ("der", "ein"), "f": ("die", "eine"), "n": ("das", "ein")}


@dataclass(frozen=True)
class Pair:
    """An English text and its German translation.

    Attributes:
        english, german: the texts.
        kind: "tatoeba", "news" (WMT), "everyday" (written for this), "example" (a sentence of the dictionary), "phrase" or
            "word" of the dictionary.
        gender: of a dictionary's noun: "m", "f", "n", or "".
    """

    english: str
    german: str
    kind: str
    gender: str = ""


def tidy(text: str) -> str:
    """One kind of quotation mark, apostrophe and space."""
    text = re.sub("[‘’‚´`]", "'", re.sub("[“”„«»]", '"', text))
    return re.sub(r"\s+", " ", text.replace("–", "-")).strip()


def key(text: str) -> str:
    """What two texts share that differ in case, punctuation and contractions only."""
    text = tidy(text).casefold()
    if "'" in text:
        text = text.replace("can't", "can not").replace("won't", "will not")
        for short, long in SPOKEN.items():
            text = re.sub(rf"{short}\b", long, text)
    return " ".join(re.findall(r"\w+", text))


def read_tatoeba(path: Path) -> list[Pair]:
    """Lines of English, tab, German."""
    rows = [line.rstrip("\n").split("\t") for line in path.open(encoding="utf-8")]
    return [Pair(tidy(row[0]), tidy(row[1]), "tatoeba") for row in rows if len(row) >= 2 and any(map(str.isalpha, row[0]))]


def untokenised(line: str) -> str:
    """Moses' tokens joined to running text again, as far as the tokens tell."""
    text = tidy(html.unescape(html.unescape(line)).replace("@-@", "-"))
    text = re.sub(r" ([.,;:!?%)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", text))
    text = re.sub(r" ('(?:s|m|re|ve|ll|d|t)\b)", r"\1", text.replace(" n't", "n't"))
    parts = text.split('"')  # quotation marks open and close in turn
    for i in range(1, len(parts), 2):
        parts[i] = parts[i].strip()
    return '"'.join(parts).strip()


def read_news(folder: Path, part: str) -> list[Pair]:
    """The WMT sample: ``src-PART.txt`` and ``tgt-PART.txt``, line by line.

    To train on, without the parliament's "ladies and gentlemen" that is "liebe Kolleginnen und Kollegen" in German.
    """
    sides = [(folder / f"{side}-{part}.txt").read_text(encoding="utf-8").split("\n") for side in ("src", "tgt")]
    pairs = [Pair(untokenised(a), untokenised(b), "news") for a, b in zip(*sides, strict=True) if a.strip() and b.strip()]
    return pairs if part != "train" else [p for p in pairs if "gentlemen" not in p.english.lower() or "Herren" in p.german]


def _forms(segment: str, words: dict[str, str]) -> list[str]:
    """The synonyms of a dictionary's segment, without its remarks."""
    segment = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|<[^>]*>|(?<= )/[^/]*/(?= |;|$)", "", tidy(segment))
    found = []
    for form in segment.split("; "):
        text = " ".join(words.get(word, word) for word in form.strip(" ;").split())
        text = re.sub(r"(?<=[^\W\d])/[\w'/]+", "", text)  # he/she: the first of them
        if text and not re.search(r"[/|…<>{}\[\]()~=]|\.\.\.", text) and len(text) < 200:
            found.append(text)
    return found


def read_dictionary(path: Path) -> list[Pair]:
    """Ding's file: ``German :: English``, both sides with the same number of segments between bars."""
    found = []
    for line in path.open(encoding="utf-8"):
        if line.startswith("#") or line.count(" :: ") != 1 or any(name in line for name in NAMES):
            continue
        german, english = (side.split(" | ") for side in line.rstrip("\n").split(" :: "))
        if len(german) != len(english):
            continue
        for de, en in zip(german, english, strict=True):
            ours, theirs = _forms(en, SHORT), _forms(de, KURZ)
            if not ours or not theirs:
                continue
            gender = re.match(r"[\wäöüÄÖÜß-]+ \{([mfn])\}", de)
            sentence = ours[0][-1] in ".!?" and theirs[0][-1] in ".!?" and " " in ours[0]
            kind = "example" if sentence else "phrase" if " " in ours[0].removeprefix("to ") else "word"
            if not sentence and theirs[0].count(" ") > 2 * ours[0].count(" ") + 2:
                continue  # explained, not translated
            found += [Pair(form, theirs[0], kind, gender[1] if gender else "") for form in ours[:3]]
            found += [Pair(ours[0], form, kind) for form in theirs[1:2] if not sentence]
    return found


def everyday() -> list[Pair]:
    """Every greeting to everyone, the way to every place, and the sentences written for this."""
    greeted = [
        (f"{hello}, {name}!" if name else f"{hello}!", f"{hallo}, {wer}!" if wer else f"{hallo}!")
        for hello, hallo in GREETINGS.items()
        for name, wer in ADDRESSES.items()
    ]
    asked = [filled(*way, Pair(place, german, "", gender)) for way in WAYS for place, (gender, german) in PLACES.items()]
    return [Pair(english, german, "everyday") for english, german in (*greeted, *asked, *SENTENCES.items())]


def filled(english: str, german: str, noun: Pair) -> tuple[str, str]:
    """A frame's first gap with a noun in it."""
    head, tail = german.split("{}", 1)
    for form, word in BEFORE[noun.gender].items():
        head = head.replace(form, word)
    return english.replace("{}", noun.english, 1), f"{head}{noun.german}{tail}"


def hold_out(pairs: list[Pair], *, share: float, seed: int) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Tatoeba's pairs as (training, validation, test), by the hash of the English text's key, never by chance.

    All translations of one English text go to the same part.
    """
    parts: tuple[list[Pair], list[Pair], list[Pair]] = ([], [], [])
    for pair in pairs:
        place = int(hashlib.sha256(f"{seed}:{key(pair.english)}".encode()).hexdigest()[:8], 16) / 2**32
        parts[2 if place < share else 1 if place < 2 * share else 0].append(pair)
    return parts


def without(pairs: Iterable[Pair], held: Iterable[Pair]) -> list[Pair]:
    """The distinct pairs that share neither their English nor their German text with a held-out one, by ``key``."""
    english, german = {key(p.english) for p in held}, {key(p.german) for p in held}
    kept = {(p.english, p.german): p for p in pairs if key(p.english) not in english and key(p.german) not in german}
    return list(kept.values())


def _known(text: str, counts: Counter[str], least: int) -> bool:
    return min((counts[word] for word in re.findall(r"\w+", text.lower())), default=0) >= least


class Variants:
    """Each epoch's texts: pairs drawn by kind, some joined to longer ones, some without capitals or punctuation.

    Args:
        pairs: to train on.
        share: how many of a kind's pairs one epoch holds, as a multiple of their number; of "common", the dictionary's entries
            whose words are common in the sentences; of "framed", sentences made of such nouns, as a multiple of all else.
    """

    def __init__(self, pairs: list[Pair], share: dict[str, float]) -> None:
        self.kinds = {kind: [p for p in pairs if p.kind == kind] for kind in share if kind not in ("common", "framed")}
        self.share = {"common": 0.0, "framed": 0.0} | share
        said = [p for p in pairs if p.kind in ("tatoeba", "example") and len(p.english) < 60]
        self.statements = [p for p in said if p.english[-1] == "." and p.german[-1] == "." and '"' not in p.english]
        self.calls = [p for p in said if p.english[-1] == "!" and p.german[-1] == "!" and p.english.count(" ") < 4]
        ours, theirs = (
            Counter(re.findall(r"\w+", " ".join(side).lower()))
            for side in zip(*[(p.english, p.german) for p in said], strict=True)
        )
        entries = [p for p in self.kinds["word"] + self.kinds["phrase"] if "-" not in p.english + p.german]
        self.common = [p for p in entries if _known(p.english, ours, 8) and _known(p.german, theirs, 3)]
        self.nouns, self.everyday = (
            [p for p in some if p.gender and " " not in p.german and not p.english.startswith(("to ", "the "))]
            for some in (self.kinds["word"], self.common)
        )
        inside = Counter(word for p in pairs for text in (p.english, p.german) for word in text.split()[1:])
        self.small = {word for word in inside if word.islower() and inside[word] > inside[word.capitalize()]}

    def epoch(self, seed: int) -> list[tuple[str, str]]:
        """(English, German), in random order."""
        rng = random.Random(seed)
        drawn: list[Pair] = []
        for kind, pairs in (self.kinds | {"common": self.common}).items():
            whole, rest = divmod(self.share[kind], 1)
            drawn += pairs * int(whole) + rng.sample(pairs, int(rest * len(pairs)))
        rng.shuffle(drawn)
        made = [(p.english, p.german) if not p.gender else self._noun(p, rng) for p in drawn]
        made += [self._joined(rng, self.statements, " and ", " und ") for _ in range(len(made) // 12)]
        made += [self._joined(rng, self.statements, None, None) for _ in range(len(made) // 30)]
        made += [self._joined(rng, self.calls, ", ", ", ") for _ in range(len(made) // 60)]
        made += [self._framed(rng) for _ in range(int(self.share["framed"] * len(made)))]
        made += [self._two(rng) for _ in range(len(made) // 30 if self.nouns else 0)]
        return [(self._plain(english, rng), german) for english, german in made]

    def _noun(self, pair: Pair, rng: random.Random) -> tuple[str, str]:
        """A noun of the dictionary, now and then with its article, which tells its gender."""
        chance = rng.random()
        if chance > 0.4 or " " in pair.german or pair.english.startswith(("to ", "the ", "a ")):
            return pair.english, pair.german
        which = chance < 0.15
        article = ("an" if pair.english[0] in "aeiou" else "a") if which else "the"
        return f"{article} {pair.english}", f"{ARTICLES[pair.gender][which]} {pair.german}"

    def _framed(self, rng: random.Random) -> tuple[str, str]:
        """A sentence about a noun whose words are common ones."""
        english, german = rng.choice(FRAMES)
        for _ in range(english.count("{}")):
            english, german = filled(english, german, rng.choice(self.everyday))
        return re.sub(r"\ba (?=[aeiou])", "an ", english), german

    def _two(self, rng: random.Random) -> tuple[str, str]:
        """Two nouns with "and" between them."""
        (a, x), (b, y) = (self._noun(rng.choice(self.nouns), rng) for _ in range(2))
        return f"{a} and {b}", f"{x} und {y}"

    def _joined(self, rng: random.Random, pairs: list[Pair], link: str | None, bond: str | None) -> tuple[str, str]:
        """Two sentences in one, or one after the other; German keeps its word order after "und"."""
        a, b = rng.choice(pairs), rng.choice(pairs)
        if link is None or bond is None:
            return f"{a.english} {b.english}", f"{a.german} {b.german}"
        formal = "you" in key(b.english).split()
        return a.english[:-1] + link + self._inner(b.english), a.german[:-1] + bond + self._inner(b.german, formal)

    def _inner(self, text: str, formal: bool = False) -> str:
        """A sentence as it is written inside another: its first word small, if that word is."""
        first = re.split(r"\W", text, maxsplit=1)[0]
        keep = first.lower() not in self.small or (formal and first in ("Sie", "Ihr", "Ihre"))
        return text if keep else first.lower() + text[len(first) :]

    def _plain(self, english: str, rng: random.Random) -> str:
        """As people type: without capitals, without punctuation, or as it was."""
        chance = rng.random()
        if chance < 0.30:
            english = english.lower()
        if 0.12 < chance < 0.42:
            english = re.sub(r"[.!?,;:\"]+(?= |$)|(?<= )\"|^\"", "", english).strip() or english
        return english
