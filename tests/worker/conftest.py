"""What the real small model says, recorded once through transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from worker.decode.vocabulary import Vocabulary

CONVERSATIONS = (
    (
        "Explain binary search in Java and its time complexity.",
        "Binary search finds a target in a sorted array. It compares the target with the middle element and "
        "continues in the half that can still hold it, so it needs O(log n) comparisons.\n```java\nint low",
    ),
    (
        "Write a short story about an old lighthouse keeper.",
        "The old keeper climbed the stairs every evening, but that winter the lamp would not burn. He "
        "listened to the sea and remembered a ship that had never come home. Then, far out, something "
        "answered him.",
    ),
    (
        'Return only JSON: {"name": string, "age": number}.',
        '{"name": "Maria", "age": 31}',
    ),
)


@pytest.fixture(scope="session")
def language_model(model_path: Path) -> Any:
    """The model as transformers runs it, in float32."""
    return AutoModelForCausalLM.from_pretrained(str(model_path), dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def recorded_logits(language_model: Any, tokenizer: Any) -> NDArray[np.float32]:
    """The logits of the real model at every position of three answers, about a hundred rows [N, V]."""
    rows = []
    for question, answer in CONVERSATIONS:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
        answer_ids = tokenizer.encode(answer, add_special_tokens=False)
        with torch.inference_mode():
            logits = language_model(torch.tensor([prompt_ids + answer_ids])).logits[0]
        rows.append(logits[len(prompt_ids) - 1 :].numpy())
    recorded: NDArray[np.float32] = np.concatenate(rows)
    recorded.setflags(write=False)
    return recorded


@pytest.fixture(scope="session")
def output_embedding(language_model: Any) -> torch.Tensor:
    embedding: torch.Tensor = language_model.get_output_embeddings().weight.detach()
    return embedding


@pytest.fixture(scope="session")
def vocabulary(tokenizer: Any, recorded_logits: NDArray[np.float32]) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer, recorded_logits.shape[1])
