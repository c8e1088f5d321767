"""The theme's vector in the real output embedding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker.decode.theme import EmbeddingSpace
from worker.decode.vocabulary import Vocabulary

THEME = (
    "The old lighthouse at Skagen. The lighthouse keeper lit the lamp every evening. "
    "Ships were guided into the harbour during storms."
)
ON_THEME = "The keeper lights the lamp so that ships at sea can find the harbour when a storm comes."
OFF_THEME = "The restaurant serves excellent pasta, and my brother watches football on television."


@pytest.fixture(scope="module")
def space(vocabulary: Vocabulary, output_embedding: torch.Tensor) -> EmbeddingSpace:
    return EmbeddingSpace(output_embedding, vocabulary)


@pytest.fixture(scope="module")
def theme(space: EmbeddingSpace, vocabulary: Vocabulary) -> NDArray[np.float32]:
    theme = space.theme(vocabulary.encode(THEME))
    assert theme is not None
    return theme


@pytest.fixture(scope="module")
def centred(vocabulary: Vocabulary, output_embedding: torch.Tensor) -> NDArray[np.float64]:
    """Rows mean-centred over the words, and of unit length: in double precision, all at once."""
    rows = output_embedding.double().numpy()
    texts = [raw.decode(errors="replace").strip() for raw in vocabulary.token_bytes]
    is_word = np.array(
        [
            bool(steerable) and any(c.isalpha() for c in text) and (len(text) > 1 or not text.isascii())
            for steerable, text in zip(vocabulary.is_steerable, texts, strict=True)
        ]
    )
    centred: NDArray[np.float64] = rows - rows[is_word].mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    centred[~is_word] = np.nan
    return centred


def test_similarity_is_the_cosine_with_the_centred_row(
    space: EmbeddingSpace, theme: NDArray[np.float32], centred: NDArray[np.float64]
) -> None:
    similarity = space.similarity(theme)
    expected = np.nan_to_num(centred @ theme.astype(np.float64))
    assert np.abs(similarity - expected).max() < 1e-4
    assert np.linalg.norm(theme) == pytest.approx(1.0, abs=1e-5)


def test_the_theme_is_the_mean_of_its_words_in_contrast_to_what_all_words_share(
    vocabulary: Vocabulary, theme: NDArray[np.float32], centred: NDArray[np.float64]
) -> None:
    known = centred[~np.isnan(centred).any(axis=1)]
    variances, directions = np.linalg.eigh(known.T @ known)
    shared = directions[:, -4:]
    # Little of what the theme points along is left in the directions of the largest variance.
    assert float(((shared.T @ theme) ** 2).sum()) < 0.02
    ids = vocabulary.encode(THEME)
    words = {id_: 1 + np.log(ids.count(id_)) for id_ in ids if not np.isnan(centred[id_]).any()}
    mean = sum(weight * centred[id_] for id_, weight in words.items())
    contrast = mean - shared @ (shared.T @ mean)
    assert contrast @ theme / np.linalg.norm(contrast) > 0.97
    assert variances[-1] > 5 * variances[-5]


def test_words_of_the_theme_are_near_and_neutral_ones_get_nothing(
    space: EmbeddingSpace, theme: NDArray[np.float32], vocabulary: Vocabulary
) -> None:
    similarity = space.similarity(theme)

    def of(word: str) -> float:
        return float(similarity[vocabulary.encode(word)[0]])

    # " ships", " lamps" and " harbor" are not in the text.
    assert min(of(word) for word in (" lighthouse", " harbour", " lamps", " harbor")) > 0.2
    assert max(of(word) for word in (" restaurant", " movie", " because", " algorithm", " good")) < 0.15
    for word in (" the", "The", ",", ".", "\n", " ", "<|im_end|>", "a"):
        assert of(word) == 0.0
    assert 10 < int((similarity >= 0.2).sum()) < 300


def test_drift_is_small_on_the_theme_and_large_off_it(
    space: EmbeddingSpace, theme: NDArray[np.float32], vocabulary: Vocabulary
) -> None:
    on, off = (space.drift(theme, vocabulary.encode(text)) for text in (ON_THEME, OFF_THEME))
    assert on is not None
    assert off is not None
    assert on < 0.7 < off


def test_a_text_without_words_has_no_theme_and_no_drift(
    space: EmbeddingSpace, theme: NDArray[np.float32], vocabulary: Vocabulary
) -> None:
    blank = vocabulary.encode("and the of \n\n 7 . , 🙂")
    assert space.theme(blank) is None
    assert space.drift(theme, blank) is None


def test_a_bfloat16_embedding_says_the_same(
    space: EmbeddingSpace, vocabulary: Vocabulary, output_embedding: torch.Tensor
) -> None:
    coarse = EmbeddingSpace(output_embedding.bfloat16(), vocabulary)
    fine_theme, coarse_theme = (s.theme(vocabulary.encode(THEME)) for s in (space, coarse))
    assert fine_theme is not None
    assert coarse_theme is not None
    difference = space.similarity(fine_theme) - coarse.similarity(coarse_theme)
    assert np.abs(difference).max() < 0.02
