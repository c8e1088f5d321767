"""The same candidates and probabilities as transformers' own logits processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from worker.decode.controller import Decider
from worker.decode.penalties import penalise
from worker.decode.row import Row
from worker.decode.sampler import Limits, draw
from worker.decode.vocabulary import Vocabulary
from worker.engine.request import GenerationRequest, SamplingParams

PROMPT = "Explain binary search in Java and its time complexity. Binary search finds a target."
CASES: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"top_k": 50},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"repetition_penalty": 1.3, "top_k": 40},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.15},
    {"temperature": 1.4, "top_p": 0.97, "repetition_penalty": 0.9},
]


def processors(case: dict[str, Any]) -> LogitsProcessorList:
    made = LogitsProcessorList()
    if "repetition_penalty" in case:
        made.append(RepetitionPenaltyLogitsProcessor(case["repetition_penalty"]))
    if "temperature" in case:
        made.append(TemperatureLogitsWarper(case["temperature"]))
    if "top_k" in case:
        made.append(TopKLogitsWarper(case["top_k"]))
    if "top_p" in case:
        made.append(TopPLogitsWarper(case["top_p"]))
    if "min_p" in case:
        made.append(MinPLogitsWarper(case["min_p"]))
    return made


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_candidate_of_transformers_is_drawn_with_its_probability(
    vocabulary: Vocabulary, decider: Decider, recorded_logits: NDArray[np.float32], case: dict[str, Any]
) -> None:
    prompt_ids = vocabulary.encode(PROMPT)
    sampling = SamplingParams(max_tokens=10, **case)
    state = decider.open(GenerationRequest("test", tuple(prompt_ids), sampling))
    emitted = vocabulary.encode(" The search needs the search")
    for id_ in emitted:
        state.advance(id_)
    limits = Limits(sampling.temperature, sampling.top_k or vocabulary.size, sampling.top_p, sampling.min_p)
    row, process = Row(vocabulary.size), processors(case)
    for logits in recorded_logits[1::12]:
        row.load(logits)
        penalise(row, state)
        scores = process(torch.tensor([prompt_ids + emitted]), torch.tensor(logits[None].astype(np.float64)))
        p = scores[0].softmax(-1).numpy()
        order = np.argsort(-p, kind="stable")[: int((p > 0).sum())]
        upper = np.cumsum(p[order])
        likely = np.flatnonzero(p[order] > 1e-4)[:60]
        assert len(likely)
        # u in the middle of a candidate's interval draws it: the kept set and its probabilities are the same.
        for index in likely:
            u = float(upper[index] - p[order][index] / 2)
            assert draw(row, limits, u).token_id == order[index]
