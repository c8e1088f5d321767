"""What is measured of every chunk of a request against the question, before anything is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gateway.context.asked import Asked
from gateway.context.candidates import Candidates, find_candidates
from gateway.context.encoding import Encoding, unit
from gateway.context.given import text_of
from gateway.context.late import TokenMatches, match_tokens
from gateway.context.lexical import TermMatches, match_terms
from gateway.context.links import (
    STEP_GAIN,
    LinkGraph,
    bare_title,
    closeness,
    is_named,
    longer_names,
    pull_of,
    reach,
)
from gateway.context.report import Document
from gateway.context.words import content_words

Column = NDArray[np.float64]

_NAMESAKE = 0.5
_ALIKE = 0.6
_UNSURE, _SURE = 0.2, 0.6
_FEEDBACK = 3


@dataclass(frozen=True, slots=True)
class Signals:
    """One number a chunk and signal, [n] each."""

    dense: Column
    """Cosine of question and chunk; of a long chunk, of its best part."""
    sentence: Column
    """Cosine of the question and the chunk's best sentence."""
    late: Column
    """MaxSim over tokens, weighted by idf; 0 where the tokens are not known."""
    bm25: Column
    """BM25 inside the request, 1 for its highest."""
    dense_z: Column
    """``dense`` in standard deviations of the request, as are the next three."""
    sentence_z: Column
    late_z: Column
    bm25_z: Column
    coverage: Column
    """Share of the question's terms, weighted by idf, that the chunk has."""
    title_named: Column
    """1 where the question contains the chunk's title, and means it; see ``named_titles``."""
    num_named: Column
    """ln of one more than how many titles the question names."""
    title_terms: Column
    """Share of the title's words that the question has."""
    evidence: Column
    """What the question itself says for the chunk, in standard deviations; it seeds the link graph."""
    lead: Column
    """Closeness to the request's best chunk: 1 for that one, falling with the gap."""
    gap: Column
    """``evidence`` below the best chunk's."""
    dense_gap: Column
    """``dense`` below the highest."""
    late_gap: Column
    """``late`` below the highest."""
    rank: Column
    """ln of the place by ``evidence``, the best being 1."""
    term_gain: Column
    """Share of the question's terms that the chunk has and the best one lacks."""
    late_gain: Column
    """By how much the chunk would raise the best one's MaxSim."""
    bridge: Column
    """Pull of linked strong chunks, at one and two steps, on a chunk that is unlike the question itself."""
    pull: Column
    """Heaviest edge to a strong chunk, at one and two steps."""
    named_by: Column
    """Closeness of the strongest chunk whose text names this one's subject."""
    names: Column
    """Closeness of the strongest chunk whose subject this one's text names."""
    named_later: Column
    """The same as ``named_by`` where what the best chunks name is strong too."""
    shared: Column
    """Rare names shared with a strong chunk."""
    feedback: Column
    """Cosine with the strongest other chunks, weighted by their closeness."""
    hop: Column
    """Cosine with question and best chunk together, above that with the question."""
    answerable: Column
    """Cosine of the question and the best sentence that has a word of the kind asked for; 0 without one."""
    agreement: Column
    """How far strong chunks share the words of that kind; see ``Candidates``."""
    crowd: Column
    """ln of how many chunks are about as strong as the best one: the sum of all their ``lead``."""
    num_chunks: Column
    """ln of the request's number of chunks."""
    best_dense: Column
    """The request's highest ``dense``."""
    best_late: Column
    """The request's highest ``late``."""
    length: Column
    """ln of the chunk's words."""
    titled: Column
    """1 where the chunk has a title."""

    def matrix(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return [n, len(names)]."""
        return np.stack([getattr(self, name) for name in names], axis=1)


SIGNALS = tuple(field.name for field in fields(Signals))


@dataclass(frozen=True, slots=True)
class _Own:
    """What the question itself says for each chunk, before any chunk says anything for another."""

    dense: Column
    sentence: Column
    tokens: TokenMatches
    late: Column
    terms: TermMatches
    bm25: Column
    title_named: Column

    def evidence(self) -> Column:
        """Return [n] all of it in one number of standard deviation 1; it seeds the link graph."""
        likeness = z(self.dense) + 0.5 * z(self.sentence) + z(self.late) + 0.7 * z(self.bm25)
        total: Column = likeness + self.title_named
        return total / (total.std() or 1.0)


def measure(
    asked: Asked, documents: Sequence[Document], encodings: Sequence[Encoding], graph: LinkGraph
) -> Signals:
    """Return the signals of ``documents``, which are at least one; ``graph`` holds the links between them."""
    n = len(documents)
    question = asked.encoding.vector
    vectors = np.stack([encoding.vector for encoding in encodings])
    own = _own(asked, documents, encodings)
    dense, late, title_named = own.dense, own.late, own.title_named
    evidence = own.evidence()
    best = int(evidence.argmax())
    lead = closeness(evidence)
    pull = reach(graph, evidence)
    strong = pull_of(graph, lead)
    candidates = find_candidates(asked.text, [text_of(document) for document in documents])
    return Signals(
        dense=dense,
        sentence=own.sentence,
        late=late,
        bm25=own.bm25 / (own.bm25.max() or 1.0),
        dense_z=z(dense),
        sentence_z=z(own.sentence),
        late_z=z(late),
        bm25_z=z(own.bm25),
        coverage=own.terms.coverage(),
        title_named=title_named,
        num_named=np.full(n, np.log1p(_num_named(documents, title_named))),
        title_terms=np.array([title_overlap(document.title, asked) for document in documents]),
        evidence=evidence,
        lead=lead,
        gap=evidence.max() - evidence,
        dense_gap=dense.max() - dense,
        late_gap=late.max() - late,
        rank=np.log(_places(evidence)),
        term_gain=own.terms.beyond(best),
        late_gain=own.tokens.beyond(best),
        bridge=_bridge(pull, lead, late if late.any() else dense, float(dense.max())),
        pull=pull,
        named_by=strong.named_by,
        names=strong.names,
        named_later=pull_of(graph, closeness(evidence + STEP_GAIN * strong.named_by)).named_by,
        shared=strong.shared,
        feedback=_feedback(vectors, lead, evidence),
        hop=vectors @ unit(question + vectors[best]) - dense,
        answerable=_answerable(candidates, [encoding.sentences @ question for encoding in encodings]),
        agreement=candidates.agreement(lead),
        crowd=np.full(n, np.log(lead.sum())),
        num_chunks=np.full(n, np.log(n)),
        best_dense=np.full(n, dense.max()),
        best_late=np.full(n, late.max()),
        length=np.log1p(own.terms.lengths),
        titled=np.array([float(bool(document.title.strip())) for document in documents]),
    )


def _own(asked: Asked, documents: Sequence[Document], encodings: Sequence[Encoding]) -> _Own:
    question = asked.encoding.vector
    tokens = match_tokens(asked, encodings)
    terms = match_terms(asked.terms, [f"{document.title} {document.text}" for document in documents])
    return _Own(
        dense=np.array([float((encoding.parts @ question).max()) for encoding in encodings]),
        sentence=np.array([float((encoding.sentences @ question).max()) for encoding in encodings]),
        tokens=tokens,
        late=tokens.similarity(),
        terms=terms,
        bm25=terms.bm25(),
        title_named=named_titles([document.title for document in documents], asked.text),
    )


def _num_named(documents: Sequence[Document], title_named: Column) -> int:
    """Return how many titles the question names, brackets left out."""
    return len({bare_title(documents[int(index)].title) for index in np.flatnonzero(title_named)})


def _best_first(evidence: Column) -> NDArray[np.int64]:
    return np.argsort(-evidence, kind="stable")


def _places(evidence: Column) -> Column:
    """Return [n] each chunk's place by ``evidence``, the best being 1."""
    places = np.empty(len(evidence))
    places[_best_first(evidence)] = np.arange(1, len(evidence) + 1)
    return places


def named_titles(titles: Sequence[str], question: str) -> Column:
    """Return [n] 1 where ``question`` names a chunk's title, a half where it rather means a namesake.

    A title inside a longer one that is named does not count: "On Fire" beside "Comets on Fire". Of several
    titles that differ in their brackets alone, the one is meant that the question gives with its brackets.
    """
    asked = question.lower()
    bare = [bare_title(title) for title in titles]
    longer = longer_names(bare)
    named = np.array([float(is_named(name, asked, longer.get(name, ()))) for name in bare])
    whole = {name for name, title in zip(bare, titles, strict=True) if _is_given_whole(name, title, asked)}
    for place, (name, title) in enumerate(zip(bare, titles, strict=True)):
        if name in whole and not _is_given_whole(name, title, asked):
            named[place] *= _NAMESAKE
    return named


def _is_given_whole(bare: str, title: str, asked: str) -> bool:
    lowered = title.lower().strip()
    return lowered != bare and lowered in asked


def title_overlap(title: str, asked: Asked) -> float:
    """Return the share of the title's content words that the question has; 0 without any."""
    here = set(content_words(bare_title(title)))
    return len(here & asked.terms.keys()) / len(here) if here else 0.0


def z(values: Column) -> Column:
    """Return ``values`` in standard deviations from their mean; zeros where they do not differ."""
    deviation = float(values.std())
    scaled: Column = (values - values.mean()) / (deviation if deviation > 1e-6 else 1.0)
    return scaled


def _bridge(pull: Column, lead: Column, likeness: Column, best: float) -> Column:
    """Weigh the links' pull by how little the question explains the chunk, and how well the best one.

    A question that no chunk is about has no strong chunk to hang others on, however they are linked.
    """
    unlike = np.maximum(0.0, 1.0 - likeness / _ALIKE)
    surely_about = min(max((best - _UNSURE) / (_SURE - _UNSURE), 0.0), 1.0)
    bridge: Column = pull * (1.0 - lead) * unlike * surely_about
    return bridge


def _answerable(candidates: Candidates, cosines: Sequence[NDArray[np.float32]]) -> Column:
    """Return [n] the highest of each chunk's sentence ``cosines`` where the sentence has a candidate."""
    best = np.zeros(len(cosines))
    for index, (marks, of_sentences) in enumerate(zip(candidates.in_sentence, cosines, strict=True)):
        if marks.any():
            # A client's vector has no sentences, and a window may split one: the chunk then counts whole.
            counted = of_sentences[marks] if len(marks) == len(of_sentences) else of_sentences
            best[index] = float(counted.max())
    return best


def _feedback(vectors: NDArray[np.float32], lead: Column, evidence: Column) -> Column:
    """Return [n] the highest cosine with one of the three strongest others, each times its closeness."""
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, 0.0)
    strongest = _best_first(evidence)[:_FEEDBACK]
    nearest: Column = (cosines[:, strongest] * lead[strongest]).max(axis=1).astype(float)
    return nearest
