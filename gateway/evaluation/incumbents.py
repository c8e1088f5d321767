"""What a user would pick instead: similarity rules, and LangChain's own classes run as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.errors import CommandError
from gateway.evaluation.measures import Mask, as_mask

SIMILARITY = 0.3
MMR_SIZE = 8
MMR_LAMBDA = 0.5
TOP_SIZES = (3, 5, 8, 10)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A question and its n chunks, in words and in the encoder's space."""

    question: str
    texts: tuple[str, ...]
    question_vector: NDArray[np.float32]
    """[d], unit length."""
    vectors: NDArray[np.float32]
    """[n, d], rows of unit length."""

    @property
    def similarity(self) -> NDArray[np.float32]:
        """[n] cosine of every chunk with the question."""
        cosines: NDArray[np.float32] = self.vectors @ self.question_vector
        return cosines

    @property
    def ranking(self) -> NDArray[np.int64]:
        """[n] indices, the most similar first; of equals the earlier."""
        return np.argsort(-self.similarity, kind="stable")


Choose: TypeAlias = Callable[[Retrieved], Mask]


@dataclass(frozen=True, slots=True)
class Incumbent:
    description: str
    choose: Choose


def incumbents() -> Mapping[str, Incumbent]:
    """Return every method that ours is compared to, by name. Raises CommandError without the extra."""
    top = {f"top_{size}": Incumbent(f"the {size} most similar chunks", _top(size)) for size in TOP_SIZES}
    return MappingProxyType(
        {
            "all": Incumbent("no pruning", lambda retrieved: np.ones(len(retrieved.texts), bool)),
            **top,
            f"similarity_{SIMILARITY}": Incumbent(
                f"cosine with the question at least {SIMILARITY}",
                lambda retrieved: retrieved.similarity >= SIMILARITY,
            ),
            **_of_langchain(),
        }
    )


def _top(size: int) -> Choose:
    return lambda retrieved: as_mask(retrieved.ranking[:size], len(retrieved.texts))


def _of_langchain() -> dict[str, Incumbent]:
    try:
        import sklearn.cluster  # noqa: F401, EmbeddingsClusteringFilter imports it when it is used
        from langchain_classic.retrievers.document_compressors import EmbeddingsFilter
        from langchain_community.document_transformers import EmbeddingsClusteringFilter
        from langchain_core.vectorstores.utils import maximal_marginal_relevance
    except ImportError as error:
        raise CommandError(
            f"{error.name or error} is missing: pip install 'narrative-gravity[evaluation]'"
        ) from error

    def mmr(retrieved: Retrieved) -> Mask:
        chosen = maximal_marginal_relevance(
            retrieved.question_vector, list(retrieved.vectors), lambda_mult=MMR_LAMBDA, k=MMR_SIZE
        )
        return as_mask(chosen, len(retrieved.texts))

    def filtered(retrieved: Retrieved) -> Mask:
        return compressed(EmbeddingsFilter(embeddings=_embeddings(retrieved)), retrieved)

    def filtered_by_threshold(retrieved: Retrieved) -> Mask:
        embeddings = _embeddings(retrieved)
        compressor = EmbeddingsFilter(embeddings=embeddings, k=None, similarity_threshold=SIMILARITY)
        compressor.k = None  # its constructor takes None for "not given" and puts 20 there
        return compressed(compressor, retrieved)

    def compressed(compressor: Any, retrieved: Retrieved) -> Mask:
        documents = compressor.compress_documents(_documents(retrieved.texts), retrieved.question)
        return _marked(documents, retrieved)

    def clustered(retrieved: Retrieved) -> Mask:
        transformer = EmbeddingsClusteringFilter(embeddings=_embeddings(retrieved))
        if len(retrieved.texts) < transformer.num_clusters:
            return np.ones(len(retrieved.texts), bool)
        return _marked(transformer.transform_documents(_documents(retrieved.texts)), retrieved)

    return {
        f"mmr_{MMR_SIZE}": Incumbent(
            f"LangChain's maximal_marginal_relevance, n = {MMR_SIZE}, lambda = {MMR_LAMBDA}", mmr
        ),
        "embeddings_filter": Incumbent("LangChain's EmbeddingsFilter() as it comes: k = 20", filtered),
        f"embeddings_filter_{SIMILARITY}": Incumbent(
            f"LangChain's EmbeddingsFilter(k=None, similarity_threshold={SIMILARITY})",
            filtered_by_threshold,
        ),
        "embeddings_clustering_filter": Incumbent(
            "LangChain's EmbeddingsClusteringFilter() as it comes: 5 clusters, 1 chunk of each; "
            "it raises below 5 chunks, which counts as everything kept",
            clustered,
        ),
    }


def _documents(texts: Sequence[str]) -> list[Any]:
    from langchain_core.documents import Document

    return [Document(page_content=text, metadata={"index": index}) for index, text in enumerate(texts)]


def _marked(documents: Sequence[Any], retrieved: Retrieved) -> Mask:
    return as_mask([document.metadata["index"] for document in documents], len(retrieved.texts))


def _embeddings(retrieved: Retrieved) -> Any:
    """Return a LangChain ``Embeddings`` that knows this request's vectors and nothing else."""
    from langchain_core.embeddings import Embeddings

    known = dict(zip(retrieved.texts, retrieved.vectors.tolist(), strict=True))

    class RequestEmbeddings(Embeddings):  # type: ignore[misc]
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [known[text] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            if text != retrieved.question:
                raise KeyError(text)
            return list(map(float, retrieved.question_vector))

    return RequestEmbeddings()
