"""What the translator is trained on: sources read into pairs of texts, held-out sentences kept apart, variants made."""

from __future__ import annotations

import hashlib
import html
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from _translation_phrases import Grammar, phrases, with_articles

SPOKEN = {"n't": " not", "'m": " am", "'re": " are", "'ve": " have", "'ll": " will", "'s": " is", "'d": " would"}


@dataclass(frozen=True)
class Pair:
    """An English text and its German translation.

    Attributes:
        english, german: the texts.
        kind: "tatoeba", "news" (WMT), "everyday" (written for this), or "distilled" (translated by other networks).
    """

    english: str
    german: str
    kind: str


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


def everyday() -> list[Pair]:
    """The phrases written for this."""
    return [Pair(english, german, "everyday") for english, german in phrases()]


def read_distilled(path: Path) -> list[Pair]:
    """Lines of English, tab, German, as ``--distil`` writes them."""
    rows = [line.rstrip("\n").split("\t") for line in path.open(encoding="utf-8")]
    return [Pair(english, german, "distilled") for english, german in rows]


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
    kept: dict[tuple[str, str], Pair] = {}
    for p in pairs:
        if key(p.english) not in english and key(p.german) not in german:
            kept.setdefault((p.english, p.german), p)
    return list(kept.values())


OWNERS = {"a", "an", "the", "this", "that", "my", "your", "his", "her", "our", "their", "no", "every", "new", "old"}


class Swaps:
    """English sentences with one word exchanged for another of its kind: new texts for other networks to translate."""

    def __init__(self) -> None:
        grammar = Grammar()
        one, many = [n.english for n in grammar.nouns if n.plural], [n.plurals for n in grammar.counted]
        kinds = [[line[0] for line in table] for table in grammar.fillers.values()]
        kinds += [["Tom", "Mary", "Anna", "Peter"], ["He", "She"], ["today", "tomorrow", "now", "again"]]
        self.others = {word: kind for kind in (*kinds, one, many) for word in kind}
        self.nouns = {*one, *many}

    def __call__(self, text: str, rng: random.Random) -> str | None:
        """None if there is nothing to exchange; a noun is one behind an article or the like."""
        words = list(re.finditer(r"\w+", text))
        owned = {b.start() for a, b in itertools.pairwise(words) if a[0].lower() in OWNERS}
        found = [w for w in words if w[0] in self.others and (w[0] not in self.nouns or w.start() in owned)]
        if not found:
            return None
        word = rng.choice(found)
        other = rng.choice([one for one in self.others[word[0]] if one != word[0]])
        return with_articles(text[: word.start()] + other + text[word.end() :])


class Variants:
    """Each epoch's texts: pairs drawn by kind, some joined to longer ones, some without capitals or punctuation.

    Args:
        pairs: to train on.
        share: how many of a kind's pairs one epoch holds, as a multiple of their number; of "framed", sentences made by
            ``Grammar``, as a multiple of all else.
        held: what is validated and tested on: no sentence of these is made.
    """

    def __init__(self, pairs: list[Pair], share: dict[str, float], held: Iterable[Pair] = ()) -> None:
        self.kinds = {kind: [p for p in pairs if p.kind == kind] for kind in share if kind != "framed"}
        self.share, self.grammar = share, Grammar()
        self.held = {key(text) for p in held for text in (p.english, p.german)}
        said = [p for p in pairs if p.kind == "tatoeba" and len(p.english) < 60]
        self.statements = [p for p in said if p.english[-1] == "." and p.german[-1] == "." and '"' not in p.english]
        self.calls = [p for p in said if p.english[-1] == "!" and p.german[-1] == "!" and p.english.count(" ") < 4]
        inside = Counter(word for p in pairs for text in (p.english, p.german) for word in text.split()[1:])
        self.small = {word for word in inside if word.islower() and inside[word] > inside[word.capitalize()]}

    def epoch(self, seed: int) -> list[tuple[str, str]]:
        """(English, German), in random order."""
        rng = random.Random(seed)
        drawn: list[Pair] = []
        for kind, pairs in self.kinds.items():
            whole, rest = divmod(self.share[kind], 1)
            drawn += pairs * int(whole) + rng.sample(pairs, int(rest * len(pairs)))
        rng.shuffle(drawn)
        made = [(p.english, p.german) for p in drawn]
        made += [self._joined(rng, self.statements, " and ", " und ") for _ in range(len(made) // 12)]
        made += [self._joined(rng, self.statements, None, None) for _ in range(len(made) // 30)]
        made += [self._joined(rng, self.calls, ", ", ", ") for _ in range(len(made) // 60)]
        made += [self.grammar.sentence(rng) for _ in range(int(self.share["framed"] * len(made)))]
        made = [(english, german) for english, german in made if not self.held & {key(english), key(german)}]
        return [(self._plain(english, rng), german) for english, german in made]

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
