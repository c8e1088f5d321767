"""Clients of the session's worker, and transformers beside it as the oracle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, StartProcess

MODEL = "SmolLM2-135M-Instruct"
TIMEOUT_S = 60.0


class GreedyReference(Protocol):
    """Greedy tokens of transformers.generate in fp32, without prompts and what follows the end."""

    def __call__(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]: ...


class ReadMetric(Protocol):
    """The sum of the series of /metrics with these labels; 0 where there is none."""

    def __call__(self, url: str, name: str, **labels: str) -> float: ...


@pytest.fixture(scope="session")
def model_name() -> str:
    return MODEL


@pytest.fixture
def client(worker_server: RunningProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=worker_server.url, timeout=TIMEOUT_S) as client:
        yield client


@pytest.fixture
async def async_client(worker_server: RunningProcess) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=worker_server.url, timeout=TIMEOUT_S, limits=limits) as client:
        yield client


@pytest.fixture
def sdk(worker_server: RunningProcess) -> Iterator[openai.OpenAI]:
    """The real OpenAI client, without its retries."""
    with openai.OpenAI(base_url=f"{worker_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def read_metric() -> ReadMetric:
    def read(url: str, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=TIMEOUT_S).text)
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    return read


@pytest.fixture(scope="session")
def one_slot_worker(start_process: StartProcess, worker_environment: Mapping[str, str]) -> RunningProcess:
    """A worker that decodes one sequence at a time, lets one wait, and pings often."""
    small = {"NG_WORKER_MAX_BATCH": "1", "NG_WORKER_MAX_WAITING": "1", "NG_WORKER_PING_S": "0.2"}
    return start_process(["-m", "worker"], {**worker_environment, **small})


@pytest.fixture(scope="session")
def reference_model(model_path: Path) -> Any:
    """transformers' own model in fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(model_path), dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def greedy_reference(reference_model: Any, tokenizer: Any) -> GreedyReference:
    import torch

    def generate(prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        batch = tokenizer.pad(
            {"input_ids": [list(prompt) for prompt in prompts]}, padding_side="left", return_tensors="pt"
        )
        with torch.inference_mode():
            found = reference_model.generate(**batch, do_sample=False, max_new_tokens=max_tokens)
        new: list[list[int]] = found[:, batch["input_ids"].shape[1] :].tolist()
        end = tokenizer.eos_token_id
        return [tokens[: tokens.index(end)] if end in tokens else tokens for tokens in new]

    return generate


@pytest.fixture(scope="session")
def read_events() -> Callable[[str], list[Any]]:
    """Split a stream's text into its events strictly: every frame is ``data: …`` and a blank line."""

    def read(text: str) -> list[Any]:
        assert text.endswith("\n\n")
        frames = text.removesuffix("\n\n").split("\n\n")
        assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
        data = [frame.removeprefix("data: ") for frame in frames]
        return [each if each == "[DONE]" else json.loads(each) for each in data]

    return read
