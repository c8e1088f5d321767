"""The metrics and labels of PromQL expressions, as far as our rules and panels use the language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

FUNCTIONS = frozenset(
    {"sum", "min", "max", "avg", "count", "rate", "increase", "histogram_quantile", "absent"}
)
KEYWORDS = frozenset({"by", "without", "and", "or", "unless", "on", "ignoring"})
_TOKEN = re.compile(
    r"\s+|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<number>\d+(?:\.\d+)?)|(?P<range>\[(?:\d+[smhd]|\$__\w+)\])"
    r"|(?P<labels>\{[^}]*\})|(?P<operator>==|!=|>=|<=|[-+*/%><(),])"
)
_MATCHER = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*')


@dataclass(slots=True)
class Query:
    """``selected``: (metric, label, value) of each matcher, the label empty for none; ``grouped``: labels."""

    selected: set[tuple[str, str, str]] = field(default_factory=set)
    grouped: set[str] = field(default_factory=set)

    @property
    def metrics(self) -> set[str]:
        return {metric for metric, _, _ in self.selected}


def parse(expression: str) -> Query:
    """Return what an expression reads. Raises ValueError for what it does not understand or balance."""
    tokens = list(_tokens(expression))
    if tokens.count(("operator", "(")) != tokens.count(("operator", ")")):
        raise ValueError(f"unbalanced: {expression}")
    query = Query()
    position = 0
    while position < len(tokens):
        kind, text = tokens[position]
        following = tokens[position + 1] if position + 1 < len(tokens) else ("", "")
        if text in ("by", "without", "on", "ignoring"):
            end = tokens.index(("operator", ")"), position)
            query.grouped |= {name for each, name in tokens[position:end] if each == "name"} - {text}
            position = end
        elif kind == "name" and text not in FUNCTIONS | KEYWORDS:
            if following == ("operator", "("):
                raise ValueError(f"unknown function {text}: {expression}")
            query.selected.add((text, "", ""))
            if following[0] == "labels":
                query.selected |= {(text, label, value) for label, value in _matchers(following[1])}
        position += 1
    return query


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise ValueError(f"not understood at {expression[position:]!r}")
        if match.lastgroup:
            yield match.lastgroup, match[0]
        position = match.end()


def _matchers(braces: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, braces.strip("{}").split(",")):
        match = _MATCHER.fullmatch(part)
        if match is None:
            raise ValueError(f"not a matcher: {part}")
        yield match[1], match[3]
