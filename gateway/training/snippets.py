"""A request as a web search would answer it: short untitled snippets, several of which say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gateway.context.links import subject_of
from gateway.context.words import sentence_starts
from gateway.lab.labelled import LabelledDocument, LabelledRequest

_NUM_SNIPPETS = 20
_MAX_SENTENCES = 3
_MOST_RELEVANT = 9
_ONE_FACT = 0.5
"""Share of the requests where only documents with an answer are taken for relevant."""
_TITLED = 0.25
"""Share of the requests whose snippets keep their titles."""


def cut(request: LabelledRequest, rng: np.random.Generator) -> list[LabelledDocument]:
    """Return about twenty snippets, up to nine of them with what makes a relevant document so.

    A relevant snippet has a sentence with an answer or the subject of another relevant document; where a
    document has neither, its first sentence.
    """
    relevant = [document for document in request.documents if document.is_relevant]
    if rng.random() < _ONE_FACT:
        relevant = [each for each in relevant if _answers(each, request)] or relevant
    others = [document for document in request.documents if not document.is_relevant]
    num_relevant = int(rng.integers(1, _MOST_RELEVANT + 1)) if relevant else 0
    sources = [relevant[place % len(relevant)] for place in range(max(num_relevant, len(relevant)))]
    snippets = [_around_core(document, request, rng) for document in sources]
    left = max(_NUM_SNIPPETS - len(snippets), 1)
    snippets += [_anywhere(others[int(place)], rng) for place in rng.permutation(len(others))[:left]]
    distinct = list({snippet.text: snippet for snippet in snippets}.values())
    if rng.random() >= _TITLED:
        distinct = [replace(snippet, title="") for snippet in distinct]
    return [distinct[int(place)] for place in rng.permutation(len(distinct))]


def _answers(document: LabelledDocument, request: LabelledRequest) -> bool:
    return any(answer.lower() in document.text.lower() for answer in request.answers if answer)


def _around_core(
    document: LabelledDocument, request: LabelledRequest, rng: np.random.Generator
) -> LabelledDocument:
    sentences = _sentences(document.text)
    named = (*request.answers, *_subjects_beside(document, request))
    wanted = [each.lower() for each in named if each]
    lowered = [sentence.lower() for sentence in sentences]
    core = [
        place for place, text in enumerate(lowered) if any(each.lower() in text for each in wanted if each)
    ]
    return _window(document, sentences, int(rng.choice(core)) if core else 0, rng)


def _anywhere(document: LabelledDocument, rng: np.random.Generator) -> LabelledDocument:
    sentences = _sentences(document.text)
    return _window(document, sentences, int(rng.integers(len(sentences))), rng)


def _window(
    document: LabelledDocument, sentences: Sequence[str], core: int, rng: np.random.Generator
) -> LabelledDocument:
    """Return one to three consecutive sentences, ``core`` among them."""
    size = int(rng.integers(1, _MAX_SENTENCES + 1))
    first = max(0, core - int(rng.integers(size)))
    return replace(document, text=" ".join(sentences[first : max(first + size, core + 1)]))


def _sentences(text: str) -> list[str]:
    starts = [*sentence_starts(text), len(text)]
    return [text[start:end].strip() for start, end in pairwise(starts)]


def _subjects_beside(document: LabelledDocument, request: LabelledRequest) -> list[str]:
    others = [each for each in request.documents if each.is_relevant and each is not document]
    return [subject_of(each) for each in others]
