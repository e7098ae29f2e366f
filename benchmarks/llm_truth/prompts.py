"""Prompts with two next words that are weighed against each other, and a prompt like each for comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """A prompt and a question about its next token.

    Attributes:
        text: the prompt.
        answer: the next token that is explained.
        rather_than: the token that it is compared with.
        like: another prompt of as many tokens.
        decisive: the word that makes the difference between the two prompts, where there is just one.
    """

    text: str
    answer: str
    rather_than: str
    like: str
    decisive: str = ""


PROMPTS = (
    Prompt("The capital of France is", " Paris", " Rome", "The capital of Italy is"),
    Prompt("Water freezes at zero degrees", " Celsius", " Fahrenheit", "Water freezes at thirty degrees"),
    Prompt("She went to the bank to deposit some", " money", " water", "She went to the river to deposit some"),
    Prompt("The opposite of hot is", " cold", " warm", "The opposite of bad is"),
    Prompt("Two plus two equals", " four", " five", "Two plus three equals"),
    Prompt("Paris is the capital of", " France", " Italy", "Rome is the capital of"),
    Prompt("The keys to the cabinet", " are", " is", "The key to the cabinet"),
    Prompt("To be or not to", " be", " have", "To have or not to"),
    Prompt("One, two, three,", " four", " five", "Two, three, four,"),
    Prompt("import numpy as", " np", " pd", "import pandas as"),
    Prompt("The chemical symbol for gold is", " Au", " Ag", "The chemical symbol for silver is"),
    Prompt("The author of Hamlet is William", " Shakespeare", " Blake", "The author of Jerusalem is William"),
)
