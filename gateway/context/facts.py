"""Numbers, dates and names as they are compared: "1,000" is 1000, "Oct" October, "U.S." United States."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.context.words import NUMBER_WORDS, STOP_WORDS, located_words

_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), 1)}
_MONTH_OF = {**_MONTHS, **{name[:3]: number for name, number in _MONTHS.items()}, "sept": 9}
_MAY = _MONTH_OF.pop("may")  # a verb, too: a month only beside a number
_DIGITS = "zero one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_ORDINALS = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {
    **{word: value for value, word in enumerate(f"{_DIGITS} {_TEENS}".split())},
    **{word: value for value, word in enumerate(_ORDINALS.split())},
    **{word: 20 + 10 * place for place, word in enumerate(_TENS.split())},
}
_SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_SCALES |= {"m": 1e6, "mn": 1e6, "bn": 1e9, "k": 1e3}
_ORDINAL_ENDINGS = frozenset({"st", "nd", "rd", "th"})
_MEASURE_WORDS = """
    km kilometre kilometres kilometer kilometers mile miles mi m metre metres meter meters ft foot feet yard
    yards inch inches cm mm kg kilogram kilograms lb lbs pound pounds ton tons tonne tonnes c f celsius
    fahrenheit hectare hectares ha acre acres sq usd eur gbp dollars euros
"""
_MEASURES = frozenset(_MEASURE_WORDS.split())
_TITLE_WORDS = """
    mr mrs ms dr sir dame lord lady president prime minister chancellor king queen prince princess pope saint
    professor prof captain general colonel director actor actress singer author coach ceo chairman jr sr inc
    ltd corp company co the
"""
_TITLES = frozenset(_TITLE_WORDS.split())
_DENIALS = frozenset({"not", "never", "no", "cannot", "neither"})
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_ROUGH = 0.005
"""Relative; "1.65 billion" and "1,654 million" are one number, rounded."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word or number of a text, at [start, end) of its characters."""

    written: str
    key: str
    """Equal for what is the same however it is written."""
    start: int
    end: int
    kind: str
    """number, month, name, or empty."""

    @property
    def is_fact(self) -> bool:
        return bool(self.kind)


def read_words(text: str, begin: int = 0) -> list[Word]:
    """Return the words of ``text`` from character ``begin`` on; the endings of "1st", "2nd" are left out."""
    found: list[Word] = []
    for start, end in located_words(text, begin):
        written = text[start:end]
        key = _key(written)
        if found and key in _ORDINAL_ENDINGS and found[-1].end == start and found[-1].kind == "number":
            continue
        found.append(Word(written, key, start, end, _kind(written, key)))
    return [_may(found, index) if word.written == "May" else word for index, word in enumerate(found)]


def _may(words: Sequence[Word], index: int) -> Word:
    beside = words[max(index - 1, 0) : index + 2]
    if any(word.kind == "number" for word in beside):
        return replace(words[index], key=f"month {_MAY}", kind="month")
    return words[index]


def differ(here: Sequence[Word], there: Sequence[Word]) -> bool:
    """Tell whether two spans in one place exclude each other: other numbers, other names, or one denies."""
    if not here or not there:
        return _denies(here) != _denies(there) and len(here) + len(there) == 1
    if _denies(here) != _denies(there) and max(len(here), len(there)) <= 2:
        return True
    return _numbers_differ(here, there) or _names_differ(here, there)


def _key(written: str) -> str:
    if written.isascii():
        key = written.lower()
    else:
        decomposed = unicodedata.normalize("NFKD", written.replace("’", "'"))
        key = "".join(each for each in decomposed if not unicodedata.combining(each)).lower() or written
    if key[0].isdigit() and _NUMBER.fullmatch(key):
        if "," in key and _GROUPED.fullmatch(key):
            key = key.replace(",", "")
        return key.lstrip("0") or "0" if key.isdigit() else key
    if key.endswith("'s") and len(key) > 2:
        key = key[:-2]
    if key in _MONTH_OF:
        return f"month {_MONTH_OF[key]}"
    return f"{_VALUES[key]}" if key in _VALUES else key


def _kind(written: str, key: str) -> str:
    if key[0].isdigit():
        return "number" if _NUMBER.fullmatch(key) else ""
    if key in NUMBER_WORDS or (key in _SCALES and len(key) > 2):
        return "number"
    if key.startswith("month "):
        return "month"
    if written[0].isupper() and key not in STOP_WORDS and key not in _TITLES:
        return "name"
    return ""


def _denies(span: Sequence[Word]) -> bool:
    return any(word.key in _DENIALS or word.key.endswith("n't") for word in span)


def _numbers_differ(here: Sequence[Word], there: Sequence[Word]) -> bool:
    """Compare dates with dates and numbers with numbers; what only one side states is no contradiction."""
    if _measures(here) != _measures(there):
        return False
    months, months_there = _months(here), _months(there)
    numbers, numbers_there = _numbers(here), _numbers(there)
    if months and months_there and months != months_there:
        return True
    if bool(months) != bool(months_there):  # "2017-10-27" has its month as a number
        numbers, numbers_there = numbers + months, numbers_there + months_there
        if bool(_years(numbers)) != bool(_years(numbers_there)):
            return False
    if not numbers or not numbers_there:
        return False
    return _misses(numbers, numbers_there) and _misses(numbers_there, numbers)


def _misses(numbers: Sequence[float], others: Sequence[float]) -> bool:
    """Tell whether some of ``numbers`` is not among ``others``."""
    return any(all(not _is_same(number, other) for other in others) for number in numbers)


def _is_same(number: float, other: float) -> bool:
    if abs(number) < 1e4 and number.is_integer() and abs(other) < 1e4 and other.is_integer():
        return number == other  # years and counts are exact
    return abs(number - other) <= _ROUGH * max(abs(number), abs(other))


def _years(numbers: Sequence[float]) -> list[float]:
    return [number for number in numbers if number.is_integer() and 1000 <= number <= 2100]


def _months(span: Sequence[Word]) -> list[float]:
    return [float(word.key[6:]) for word in span if word.kind == "month"]


def _numbers(span: Sequence[Word]) -> list[float]:
    """Return the values of the numbers in ``span``, "1.65 billion" and "twenty five" each as one."""
    values: list[float] = []
    last = -2
    for index, word in enumerate(span):
        if word.key in _SCALES:
            if last == index - 1 and values:
                values[-1] *= _SCALES[word.key]
                last = index
            elif word.kind == "number":
                values.append(_SCALES[word.key])
                last = index
        elif word.kind == "number":
            value = _value(word.key) if not (noon := _half_day(span, index)) else _minutes(word.key, noon)
            if last == index - 1 and values and values[-1] in range(20, 100, 10) and 0 < value < 10:
                values[-1] += value
            else:
                values.append(value)
            last = index
    return values


def _value(key: str) -> float:
    parts = re.split(r"[.,:]", key)
    if len(parts) == 1 or (len(parts) == 2 and "." in key):
        return float(key)
    return _minutes(key, "") if ":" in key else float("".join(parts))


def _half_day(span: Sequence[Word], index: int) -> str:
    """Return "am" or "pm" where that follows a number, with dots or without."""
    after = "".join(word.key for word in span[index + 1 : index + 3])
    return after[:2] if after[:2] in ("am", "pm") else ""


def _minutes(key: str, half_day: str) -> float:
    """Return a time of day in minutes and a half, so that it never equals a count."""
    hour, minute, *_ = [int(part) for part in re.split(r"[.,:]", key)] + [0]
    if half_day:
        hour = hour % 12 + (12 if half_day == "pm" else 0)
    return hour * 60 + minute + 0.5


def _measures(span: Sequence[Word]) -> set[str]:
    letters = ("a", "p")  # of "p.m."
    return {
        word.key
        for index, word in enumerate(span)
        if word.key in _MEASURES and not (word.key == "m" and index and span[index - 1].key in letters)
    }


def _names_differ(here: Sequence[Word], there: Sequence[Word]) -> bool:
    names = [word.key for word in here if word.kind == "name"]
    names_there = [word.key for word in there if word.kind == "name"]
    if not names or not names_there:
        return False
    if any(_is_form_of(name, other) for name in names for other in names_there):
        return False
    return not (_abbreviates(names, there) or _abbreviates(names_there, here))


def _is_form_of(name: str, other: str) -> bool:
    """Tell whether one is the beginning of the other: an initial, an abbreviation, a plural, "Russian"."""
    return name.startswith(other) or other.startswith(name)


def _abbreviates(names: Sequence[str], span: Sequence[Word]) -> bool:
    """Tell whether ``names`` are the initials of the other side's words, as one word or as letters."""
    letters = "".join(names)
    capitals = "".join(word.key[0] for word in span if word.written[0].isupper())
    return len(letters) >= 2 and letters in (capitals, "".join(word.key[0] for word in span))
