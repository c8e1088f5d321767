"""Several centres of gravity: groups of kept chunks, each coherent and near the question, not linked.

"How large is Mercury?" may bring chunks about a planet and chunks about a metal. Both stay, and the report
says that there are two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gateway.context.encoding import unit
from gateway.context.judge import Judgement
from gateway.context.links import bare_title, subject_of
from gateway.context.report import Centre
from gateway.context.themes import theme_words
from gateway.context.words import content_words, names

GAP = 0.15
"""How much more alike the chunks within either group are than those of the one to those of the other."""
COHERENT = 0.2
"""Mean cosine within a group, without what all chunks have in common with the question."""
NEAR = 0.3
"""How much lower than the best chunk's cosine with the question a group's best may be."""
WITHIN_REACH = 0.4
"""The same for a member of a group."""
ALIKE = 0.75
"""Share of the question's words found in either group that both have: an ambiguous question means both with
the same words, a question about two things has words for each."""
MAX_CHUNKS = 32
"""The nearest to the question are looked at."""
MAX_WORDS = 6


def find_centres(judgement: Judgement, kept: Sequence[int]) -> tuple[Centre, ...]:
    """Return the centres among the ``kept`` of the judged documents, the nearest to the question first.

    There are none unless there are two. What was not kept but is near the question helps to see a group.
    """
    dense = judgement.signals.dense
    near = np.flatnonzero(dense >= dense.max() - WITHIN_REACH)
    members = [int(index) for index in near[np.argsort(-dense[near], kind="stable")][:MAX_CHUNKS]]
    if len(members) < 2 or len(kept) < 2:
        return ()
    stay = set(kept)
    groups = [[members[place] for place in sorted(group)] for group in _settle(_ground(judgement, members))]
    centres = [centre for group in groups if (centre := [index for index in group if index in stay])]
    return tuple(_centre(judgement, centre, centres) for centre in centres) if len(centres) > 1 else ()


@dataclass(frozen=True, slots=True)
class _Ground:
    """What rivalry is judged by, for the n chunks that are looked at."""

    alike: NDArray[np.float32]
    """[n, n], cosines without what each chunk has in common with the question."""
    dense: NDArray[np.float32]
    """[n], cosine with the question."""
    links: NDArray[np.bool_]
    """What ties two chunks beside the question's own words."""
    found: Sequence[frozenset[str]]
    """The question's content words in each chunk."""
    names: frozenset[str]
    """Those of them that are names."""
    titles: Sequence[str]
    """Without what stands in brackets."""


def _ground(judgement: Judgement, members: Sequence[int]) -> _Ground:
    asked, vectors = judgement.asked, judgement.vectors[list(members)]
    documents = [judgement.documents[index] for index in members]
    dense = vectors @ asked.encoding.vector
    rest = unit(vectors - np.outer(dense, asked.encoding.vector))
    terms = frozenset(asked.terms)
    return _Ground(
        alike=rest @ rest.T,
        dense=dense,
        links=_links(judgement, members),
        found=[terms & set(content_words(f"{each.title} {each.text}")) for each in documents],
        names=terms & {name.lower() for name in names(asked.text)},
        titles=[bare_title(each.title) for each in documents],
    )


def _links(judgement: Judgement, members: Sequence[int]) -> NDArray[np.bool_]:
    """Return [n, n] which chunks are linked: by one title, by a title that one names, by two rare names.

    Words of the question's own link nothing: whatever an ambiguous word means, all chunks have it.
    """
    terms, graph = judgement.asked.terms.keys(), judgement.graph
    documents = [judgement.documents[index] for index in members]
    titles = [each.title.strip().lower() for each in documents]
    is_own = np.array([bool(set(content_words(subject_of(each))) - terms) for each in documents])
    rare = [graph.rare_names[index].keys() - terms for index in members]
    named = graph.named[np.ix_(members, members)] & is_own[:, None]
    links: NDArray[np.bool_] = named | named.T
    for i, j in combinations(range(len(members)), 2):
        if (titles[i] and titles[i] == titles[j]) or len(rare[i] & rare[j]) >= 2:
            links[i, j] = links[j, i] = True
    return links


def _settle(ground: _Ground) -> list[list[int]]:
    """Join the most alike groups (average linkage) until one is left; rivals stay apart inside it."""
    groups = [[[index]] for index in range(len(ground.dense))]
    sizes = np.ones(len(groups))
    sums = ground.alike.astype(float)
    np.fill_diagonal(sums, -np.inf)
    for _ in range(len(groups) - 1):
        means = sums / np.outer(sizes, sizes)
        first, second = divmod(int(means.argmax()), len(groups))
        groups[first] = _join(groups[first], groups[second], ground)
        groups[second] = []
        sums[first] += sums[second]
        sums[:, first] = sums[first]
        sums[second] = sums[:, second] = sums[first, first] = -np.inf
        sizes[first] += sizes[second]
    return next(group for group in groups if group)


def _join(group: list[list[int]], other: list[list[int]], ground: _Ground) -> list[list[int]]:
    """Return the centres of both: side by side where all are rivals, else as one; a lone chunk joins none."""
    if all(_are_rivals(here, there, ground) for here in group for there in other):
        return group + other
    if len(group) == len(other) == 1:
        return [group[0] + other[0]]
    return max(group, other, key=len)


def _are_rivals(group: Sequence[int], other: Sequence[int], ground: _Ground) -> bool:
    """Tell whether two groups, each coherent, are about the question alike and share nothing else."""
    if min(len(group), len(other)) < 2 and not _bear_one_name(group, other, ground):
        return False
    best = float(ground.dense.max()) - NEAR
    if min(float(ground.dense[group].max()), float(ground.dense[other].max())) < best:
        return False
    between = np.ix_(group, other)
    inside = min(_cohesion(group, ground), _cohesion(other, ground))
    if inside < COHERENT or inside - float(ground.alike[between].mean()) < GAP or ground.links[between].any():
        return False
    here = frozenset().union(*(ground.found[index] for index in group))
    there = frozenset().union(*(ground.found[index] for index in other))
    if not here & there or (here ^ there) & ground.names:
        return False
    return len(here & there) >= ALIKE * len(here | there)


def _bear_one_name(group: Sequence[int], other: Sequence[int], ground: _Ground) -> bool:
    shared = {ground.titles[index] for index in group} & {ground.titles[index] for index in other}
    return bool(shared - {""})


def _cohesion(group: Sequence[int], ground: _Ground) -> float:
    """Return the mean cosine of a group's pairs, 1 for a chunk alone."""
    size = len(group)
    total = float(ground.alike[np.ix_(group, group)].sum()) - size
    return total / (size * (size - 1)) if size > 1 else 1.0


def _centre(judgement: Judgement, centre: Sequence[int], centres: Sequence[Sequence[int]]) -> Centre:
    """Name a centre by the words that it has and the others lack; its documents in the order as sent."""
    here = [judgement.documents[index] for index in sorted(centre)]
    rest = [judgement.documents[index] for other in centres if other is not centre for index in other]
    texts = [f"{each.title} {each.text}" for each in here]
    others = [f"{each.title} {each.text}" for each in rest]
    words = theme_words(judgement.asked.text, texts, [1.0] * len(texts), others, MAX_WORDS)
    return Centre(tuple(each.id for each in here), words)
