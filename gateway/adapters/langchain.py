"""LangChain: a document compressor that keeps what belongs to the question.

retriever = ContextualCompressionRetriever(
    base_compressor=GravityCompressor(base_url="http://127.0.0.1:8080"), base_retriever=…
)
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document

from gateway.adapters.client import Kept, Passage, Pruning


class GravityCompressor(Pruning, BaseDocumentCompressor):  # type: ignore[misc]
    """Drops the documents that the gateway drops. Those that stay are copies with all of their metadata.

    ``metadata["relevance_score"]`` is the keep-probability, ``metadata["gravity_reason"]`` why it stays. A
    title is read from ``metadata["title"]``. Raises GravityError, or keeps everything with
    ``on_error="keep_all"``.
    """

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        if not documents:
            return []
        return _chosen(documents, self.kept(query, [_passage(document) for document in documents]))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        if not documents:
            return []
        return _chosen(documents, await self.akept(query, [_passage(document) for document in documents]))


def _passage(document: Document) -> Passage:
    title = document.metadata.get("title")
    return Passage(document.page_content, title if isinstance(title, str) else "", document.id)


def _chosen(documents: Sequence[Document], kept: Sequence[Kept] | None) -> list[Document]:
    if kept is None:
        return list(documents)
    return [_marked(documents[each.index], each) for each in kept]


def _marked(document: Document, kept: Kept) -> Document:
    marks = {"relevance_score": kept.score, "gravity_reason": kept.reason}
    return document.model_copy(update={"metadata": {**document.metadata, **marks}})
