"""LlamaIndex: a node postprocessor that keeps what belongs to the question.

engine = index.as_query_engine(
    node_postprocessors=[GravityPostprocessor(base_url="http://127.0.0.1:8080")]
)
"""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from gateway.adapters.client import GravityError, Kept, Passage, Pruning


class GravityPostprocessor(Pruning, BaseNodePostprocessor):  # type: ignore[misc]
    """Drops the nodes that the gateway drops. Those that stay are the same nodes with a new score.

    ``score`` is the keep-probability. A node's metadata becomes part of the prompt and belongs to the index,
    so nothing is added to it; a title is read from ``metadata["title"]``. Raises GravityError, or keeps
    everything with ``on_error="keep_all"``.
    """

    @classmethod
    def class_name(cls) -> str:
        return "GravityPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        return _chosen(nodes, self.kept(_question(query_bundle), [_passage(node) for node in nodes]))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        return _chosen(nodes, await self.akept(_question(query_bundle), [_passage(node) for node in nodes]))


def _question(query_bundle: QueryBundle | None) -> str:
    if query_bundle is None:
        raise GravityError("There is no query to judge the nodes against.")
    return str(query_bundle.query_str)


def _passage(scored: NodeWithScore) -> Passage:
    title = scored.node.metadata.get("title")
    text = scored.node.get_content(metadata_mode=MetadataMode.NONE)
    return Passage(text, title if isinstance(title, str) else "", scored.node.node_id)


def _chosen(nodes: Sequence[NodeWithScore], kept: Sequence[Kept] | None) -> list[NodeWithScore]:
    if kept is None:
        return list(nodes)
    return [NodeWithScore(node=nodes[each.index].node, score=each.score) for each in kept]
