"""A request through our pruner, as it is, and through the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gateway.context.decide import PruneOptions, PruneQuery
from gateway.context.pruner import Pruner
from gateway.errors import CommandError
from gateway.evaluation.comparison import summarize
from gateway.evaluation.incumbents import incumbents
from gateway.evaluation.subject import Bench, as_sent
from gateway.lab.labelled import LabelledDocument, LabelledRequest, read_labelled
from tests.pruning import count_words


async def test_our_figures_are_those_of_the_pruners_own_report(pruner: Pruner, labelled_file: Path) -> None:
    request = read_labelled([labelled_file])[0]
    subject = await Bench(pruner, incumbents()).try_all(request)
    query = PruneQuery(request.question, as_sent(request))
    report = await pruner.prune(query, PruneOptions(keep="safe"), count_words)
    kept = {index for index, verdict in enumerate(report.verdicts) if verdict.is_kept}
    assert 1 in kept
    assert subject.measures["ours_safe"].recall == 1.0
    assert subject.measures["ours_safe"].off_topic_dropped == len({0, 3} - kept) / 2
    texts = [f"{document.title}. {document.text}" for document in request.documents]
    encoded = (await pruner.encoders.local.encode(texts)).encodings
    tokens = np.array([len(encoding.token_ids) for encoding in encoded])
    assert subject.measures["ours_safe"].tokens == pytest.approx(tokens[sorted(kept)].sum() / tokens.sum())
    np.testing.assert_allclose(subject.probability, [verdict.score for verdict in report.verdicts])
    assert subject.ranking[0] == 1


async def test_a_request_that_cannot_be_pruned_is_an_error(pruner: Pruner) -> None:
    bench = Bench(pruner, incumbents())
    documents = (LabelledDocument("d", "Some text."),)
    with pytest.raises(CommandError, match=r"request 'r' was not pruned: .*no question"):
        await bench.try_all(LabelledRequest("r", "s", "  ", documents))


async def test_groups_average_over_requests(pruner: Pruner, labelled_file: Path) -> None:
    bench = Bench(pruner, incumbents())
    subjects = [await bench.try_all(request) for request in read_labelled([labelled_file])]
    group = summarize(subjects, 0)
    everything = group.cells["all"]
    assert {name: interval and interval.mean for name, interval in everything.items()} == {
        "recall": 1.0,
        "full": 1.0,
        "tokens": 1.0,
        "answer": 1.0,  # of the two requests that name answers
        "recall_lenient": 1.0,
        "off_topic_dropped": 0.0,
    }
    ours, found = group.cells["ours_balanced"], group.comparisons["ours_balanced"]
    assert ours["tokens"] is not None
    assert found.at_equal_tokens.tokens == pytest.approx(ours["tokens"].mean)
    means = [subject.measures["ours_balanced"].recall for subject in subjects]
    assert found.recall_difference["top_3"].mean == pytest.approx(
        np.mean(means) - np.mean([subject.measures["top_3"].recall for subject in subjects])
    )
    assert found.for_our_recall.recall >= np.mean(means)


async def test_a_group_without_relevant_chunks_is_compared_to_nothing(pruner: Pruner) -> None:
    documents = (LabelledDocument("d", "Roses want sun."), LabelledDocument("e", "Moss wants shade."))
    subject = await Bench(pruner, incumbents()).try_all(LabelledRequest("r", "s", "Who sings?", documents))
    group = summarize([subject], 0)
    assert group.comparisons == {}
    assert group.cells["ours_balanced"]["recall"] is None
    assert group.cells["all"]["tokens"] is not None
