"""The card of a selector: what it learned from, how, and what it keeps, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.context.encoding import Space
from gateway.context.selector import SETTINGS, Scorer, Selector
from gateway.training.choosing import Kept, by_set, of_kinds, reliability, share_themeless
from gateway.training.fitting import Judged, Recipe
from gateway.training.variations import WEIGHTS, Kind

_SHOWN: tuple[Kind, ...] = ("as_sent", "untitled", "snippets", "padded")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a selector comes from."""

    files: Sequence[tuple[str, str]]
    """(name, SHA-256) of each file of labelled requests."""
    num_requests: Mapping[str, int]
    """By set."""
    encoder: str
    recipe: Recipe
    libraries: Mapping[str, str]


def render_card(
    selector: Selector,
    provenance: Provenance,
    judged: Mapping[Space, Sequence[Judged]],
    unseen: Sequence[Judged],
) -> str:
    """Return the card as Markdown. ``judged`` is out of fold, ``unseen`` out of set; neither is in sample."""
    recipe = provenance.recipe
    lines = [
        f"# Selector {selector.version}",
        "",
        "Gives each retrieved document a keep-probability from what was measured of it against the question.",
        "Written by `gravity train context`; `docs/pruning.md` says how it is used and trained.",
        "",
        "## Learned from",
        "",
        *(f"- `{name}`, SHA-256 `{digest}`" for name, digest in provenance.files),
        "- requests: " + ", ".join(f"{name} {number}" for name, number in provenance.num_requests.items()),
        "- in these shapes, with these weights: "
        + ", ".join(f"{kind} {weight:g}" for kind, weight in WEIGHTS.items()),
        f"- encoder {provenance.encoder}; seed {recipe.seed}; "
        + ", ".join(f"{name} {version}" for name, version in provenance.libraries.items()),
        f"- gradient-boosted trees: {recipe.rounds} of depth {recipe.depth}, shrinkage {recipe.shrinkage:g}, "
        f"each split chooses from {recipe.columns_tried:.0%} of the signals",
        "",
        "## What a token costs in each setting",
        "",
        "| encodings | balanced | safe | theme from | foreign questions without theme |",
        "|---|---|---|---|---|",
        *(_settings_row(space, selector.scorers[space], judged[space]) for space in selector.scorers),
        "",
        f"## What is kept, out of fold ({recipe.num_folds} folds), with full encodings",
        "",
        *_kept_table(judged["full"], selector.scorers["full"]),
        "",
        "## What is kept of a set that was left out of training",
        "",
        *_kept_table(unseen, selector.scorers["full"]),
        "",
        "## Calibration, out of fold",
        "",
        "| mean probability | share relevant | chunks |",
        "|---|---|---|",
        *(f"| {mean:.3f} | {share:.3f} | {number} |" for mean, share, number in reliability(judged["full"])),
        "",
    ]
    return "\n".join(lines)


def _settings_row(space: Space, scorer: Scorer, judged: Sequence[Judged]) -> str:
    themeless = share_themeless(judged, scorer.about)
    settings = " | ".join(f"{scorer.prices[name]:.3g}" for name in SETTINGS)
    return f"| {space} | {settings} | {scorer.about:.3g} | {themeless:.0%} |"


def _kept_table(judged: Sequence[Judged], scorer: Scorer) -> list[str]:
    lines = [
        "| set | shape | balanced: recall, all, tokens | safe | requests |",
        "|---" * 5 + "|",
    ]
    for kind in _SHOWN:
        per_setting = [by_set(of_kinds(judged, {kind}), scorer.prices[name]) for name in SETTINGS]
        for name in sorted(per_setting[0]):
            cells = " | ".join(_kept(sets[name]) for sets in per_setting)
            lines.append(f"| {name} | {kind} | {cells} | {per_setting[0][name].num_requests} |")
    return lines


def _kept(kept: Kept) -> str:
    return f"{kept.recall:.3f}, {kept.full:.3f}, {kept.tokens:.3f}"
