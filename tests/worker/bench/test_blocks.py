"""The arms of ``bench blocks`` on a tiny model; what they are worth is for the real one."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
import torch
from typer.testing import CliRunner

from worker.bench.__main__ import app
from worker.bench.block_contexts import DEPTHS, WORDS, Context, ContextPlan, Needle, make_contexts
from worker.bench.block_figures import Run, difference, figures
from worker.bench.block_reading import Bench
from worker.bench.block_runs import ContextRuns
from worker.bench.blocks import arms
from worker.bench.quest import QuestPages
from worker.decode.controller import Decider
from worker.decode.vocabulary import Vocabulary
from worker.engine.focus.keeper import BlockKeeper
from worker.protocol import KVBlockControls

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadTiny

RUN = Run(0.5, 2.0, 1.5, 0.4, 3, 2, 5)


def ids(seed: int, count: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(10, 40_000, count).tolist())


def test_contexts_hide_every_needle_at_its_depth_and_share_no_text(tmp_path: Path, tokenizer: Any) -> None:
    passages = [{"title": f"Town {n}", "text": f"Town number {n} lies by a lake. " * 4} for n in range(60)]
    data = tmp_path / "data.jsonl.gz"
    lines = [orjson.dumps({"documents": passages[n : n + 5]}) for n in range(0, 60, 5)]
    data.write_bytes(gzip.compress(b"\n".join(lines)))
    first, second = make_contexts(tokenizer, ContextPlan(data, 600, 20, 2))
    for context in (first, second):
        assert (len(context.token_ids), len(context.continuation_ids)) == (600, 20)
        text = tokenizer.decode(context.token_ids)
        for needle in context.needles:
            told = (tokenizer.decode(needle.opening_ids) + tokenizer.decode([needle.word_id])).strip()
            told = told[0].upper() + told[1:] + "."
            assert text.count(told) == 1
            place = len(tokenizer.encode(text[: text.index(told)])) / 600
            assert needle.depth <= place < needle.depth + 0.1
        assert [needle.depth for needle in context.needles] == list(DEPTHS)
    assert len(first.candidate_ids) == len(WORDS)
    towns = [set(tokenizer.decode(c.token_ids).split("Town ")[2:-1]) for c in (first, second)]
    assert not towns[0] & towns[1]
    with pytest.raises(ValueError, match="too little text"):
        list(make_contexts(tokenizer, ContextPlan(data, 600, 20, 9)))


def test_every_arm_keeps_as_much_as_ours_and_the_cache_serves_one_after_another(
    load_tiny: LoadTiny, vocabulary: Vocabulary
) -> None:
    needle = Needle(0.5, ids(5, 6), ids(6, 3), 77)
    context = Context(ids(1, 170), ids(2, 24), (needle, replace(needle, word_id=78)), (77, 78, 79))
    model = load_tiny(num_slots=2, max_context=256)
    controls = KVBlockControls(
        mode="entropy",
        threshold=1.2,
        reference_nats=50.0,
        min_blocks=1,
        look_every=8,
        attention_smoothing=0.5,
    )
    with torch.inference_mode():
        runs = ContextRuns(Bench(model, Decider(vocabulary)), context)
        dense = runs.run(lambda branch: (BlockKeeper(model), None), 1.0, 1.0)
        compared = arms(model, controls)
        ours = runs.run(compared["ours"], 1.0, 1.0)
        assert 0.5 < ours.share < 0.9
        for name, arm in compared.items():
            run = runs.run(arm, ours.share, ours.needle_share)
            assert run.share == pytest.approx(ours.share, abs=0.05), name
            assert run.needle_share == pytest.approx(ours.needle_share, abs=0.06), name
            assert run.nats_per_token != dense.nats_per_token, name
            assert run.num_needles == 2
        whole = runs.run(compared["quest"], 1.0, 1.0)
        again = runs.run(lambda branch: (BlockKeeper(model), None), 1.0, 1.0)
    assert whole.nats_per_token == pytest.approx(dense.nats_per_token, abs=1e-5)
    assert again.nats_per_token == dense.nats_per_token, "no arm leaves anything behind"


def test_quest_takes_the_blocks_whose_keys_may_score_highest() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(100, 4, 8, generator=generator)  # two key heads, two value heads
    queries = torch.randn(1, 6, 8, generator=generator)
    pages = QuestPages([rows], share=3 / 7)
    pages.grow(100)
    pages.add(queries, rows[:, :2].transpose(0, 1))
    keys, values = pages.read(0, 100)
    for head in range(2):
        # Three query heads share a key head; their bounds by the definition, one number at a time.
        bounds = []
        for block in rows[:96, head].view(6, 16, 8):
            low, high = block.amin(0), block.amax(0)
            of_heads = [
                float(torch.maximum(q * low, q * high).sum()) for q in queries[0, 3 * head : 3 * head + 3]
            ]
            bounds.append(sum(of_heads) / 3)
        best = sorted(range(6), key=lambda block: -bounds[block])[:2]
        positions = [position for block in best for position in range(16 * block, 16 * block + 16)]
        positions += range(96, 100)
        assert torch.equal(keys[0, head], rows[positions, head])
        assert torch.equal(values[0, head], rows[positions, head + 2])


def test_figures_are_means_over_contexts_beside_dense() -> None:
    dense = [replace(RUN, nats_per_token=1.0), replace(RUN, nats_per_token=3.0)]
    told = figures([RUN, replace(RUN, nats_per_token=3.5, num_chosen=5)], dense)
    assert (told.nats_per_token, told.nats_more) == (2.75, 0.75)
    assert (told.nats_more_low, told.nats_more_high) == (0.5, 1.0)
    assert (told.recall, told.written, told.num_needles) == (0.8, 0.4, 10)
    less = difference([replace(RUN, num_chosen=5)], [RUN])
    assert less == {"nats_per_token": (0.0, 0.0, 0.0), "recall": (0.4, 0.4, 0.4)}


def test_sizes_that_are_none_are_refused_with_what_to_write(tmp_path: Path) -> None:
    for tokens in ("2k", "100"):
        refused = CliRunner().invoke(app, ["blocks", "--data", str(tmp_path), "--tokens", tokens])
        assert refused.exit_code == 2
        assert "2000,6000" in refused.output or "256" in refused.output
