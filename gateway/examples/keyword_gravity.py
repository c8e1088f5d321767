"""Gravity by keywords: a boost for the theme's words, a penalty for words off it, at three strengths.

Strength g adds 0.2 g nats to a theme word and takes g nats from a penalised one, at every position
(``plausible`` is 0 here). With too much of it the text repeats itself: hence rep-4 beside the theme's share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console
from rich.table import Table

from gateway.examples.laboratory import Completion, Laboratory, Sampling
from gateway.lab.repetition import rep_n
from worker.protocol import DecodeControls, GravityControls

STRENGTHS = (0.0, 1.2, 3.0)
PROMPT = (
    "<|im_start|>user\nExplain how to find a number in a sorted list, and how long that takes.<|im_end|>\n"
    "<|im_start|>assistant\n"
)
KEYWORDS = (
    *("list", "number", "element", "search", "sorted", "index"),
    *("value", "target", "middle", "binary", "half", "step"),
)
PENALIZE = ("python", "code", "function", "def")
"""An explanation is wanted, not a program."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Means over the answers at one strength; shares in [0, 1]."""

    theme_rate: float
    """Share of the words that are theme words."""
    off_theme_rate: float
    """Share of the words that are penalised ones."""
    rep_4: float
    """Share of the 4-grams of words that occurred before in the same answer."""
    num_words: float

    @classmethod
    def of(cls, completions: Sequence[Completion]) -> Measure:
        answers = [words(completion.text) for completion in completions]
        return cls(
            fmean(rate(answer, KEYWORDS) for answer in answers),
            fmean(rate(answer, PENALIZE) for answer in answers),
            fmean(rep_n(answer, 4) for answer in answers),
            fmean(len(answer) for answer in answers),
        )


def words(text: str) -> list[str]:
    """Return the words in lower case."""
    return re.findall(r"[a-z]+", text.lower())


def rate(answer: Sequence[str], wanted: Sequence[str]) -> float:
    """Return the share of words that are one of those wanted, or its plain plural."""
    forms = {form for word in wanted for form in (word, word + "s", word + "es")}
    return sum(word in forms for word in answer) / max(1, len(answer))


def controls(strength: float) -> DecodeControls:
    """The plain form: everywhere, at all steps, the seed's weights."""
    return DecodeControls(
        gravity=GravityControls(
            strength=strength, keywords=KEYWORDS, penalize=PENALIZE, plausible=0.0, decay="none"
        )
    )


async def run(laboratory: Laboratory, sampling: Sampling) -> Mapping[float, tuple[Completion, ...]]:
    """Return the answers at each strength. All strengths draw with the same random numbers."""
    return {
        strength: await laboratory.complete(PROMPT, sampling, controls(strength)) for strength in STRENGTHS
    }


def show(console: Console, answers: Mapping[float, tuple[Completion, ...]]) -> None:
    """Print one row a strength, and the first answer at each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("strength", "theme words", "penalised", "rep-4", "words", "mean bias", "mean H"):
        table.add_column(name, justify="right")
    for strength, completions in answers.items():
        measure = Measure.of(completions)
        steps = [step for completion in completions for step in completion.steps]
        table.add_row(
            f"{strength:.1f}",
            f"{measure.theme_rate:.1%}",
            f"{measure.off_theme_rate:.1%}",
            f"{measure.rep_4:.1%}",
            f"{measure.num_words:.0f}",
            f"{fmean(step.bias_nats for step in steps):+.3f}",
            f"{fmean(step.entropy_nats for step in steps):.2f}",
        )
    console.print(table)
    for strength, completions in answers.items():
        console.rule(f"strength {strength:.1f}, the first of {len(completions)} answers")
        console.print(completions[0].text.strip(), markup=False)
