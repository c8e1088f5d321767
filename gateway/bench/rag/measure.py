"""Starts what is measured: for every round a new stack, whose encoder knows no chunk, and ``generate``."""

from __future__ import annotations

import os
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from gateway.bench.rag.asking import MODEL, Round, Sides, Tell
from gateway.bench.rag.figures import Asked
from gateway.bench.rag.questions import Messages, Question, choose
from gateway.bench.rag.rival import Rival, generating
from gateway.bench.rag.task import write_task
from gateway.bench.usage import Usage
from gateway.lab.labelled import read_labelled
from gateway.stack.child import keep_quiet
from gateway.stack.ports import free_port
from gateway.stack.stack import StackPlan, running
from gateway.store.document import ContextSection

CONTEXT = 4_096
ENCODER_S = 60.0
"""Longer than a gateway would wait: on a busy machine a request must not go on unpruned."""
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
"""torch's names of the worker's."""


@dataclass(frozen=True, slots=True)
class RagPlan:
    """``rival_dtype`` None is the worker's own."""

    data: tuple[Path, ...]
    model_folder: Path
    num_questions: int = 20
    num_rounds: int = 1
    seed: int = 0
    rival_dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """``load`` is the load average over a minute, before and after."""

    asked: tuple[Asked, ...]
    worker_dtype: str
    rival_dtype: str
    load: tuple[float, float]


async def measure(plan: RagPlan, tell: Tell) -> Measured:
    """Raises CommandError where the data are too few, or anybody does not answer."""
    asked: list[Asked] = []
    before, dtype, rival_dtype = os.getloadavg()[0], "", ""
    rival: Rival | None = None
    async with AsyncExitStack() as started:
        folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="gravity-rag-"))) / "configs"
        questions = _questions(plan, write_task(folder).context)
        for number in range(plan.num_rounds):
            tell(f"round {number + 1} of {plan.num_rounds}: starting a gateway and a worker")
            async with running(_stack_plan(folder, plan), keep_quiet) as stack:
                if rival is None:
                    dtype = await _dtype(stack.worker_url)
                    rival_dtype = plan.rival_dtype or dtype
                    generates = generating(plan.model_folder, DTYPES[rival_dtype], 1)
                    rival = await started.enter_async_context(generates)
                usages = tuple(Usage(child.pid, child.name) for child in stack.children)
                sides = Sides(stack.gateway_url, stack.redis_url, usages, rival)
                asked += await Round(number, sides, tell).ask_all(questions)
    return Measured(tuple(asked), dtype, rival_dtype, (before, os.getloadavg()[0]))


def _questions(plan: RagPlan, context: ContextSection) -> list[Question]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(plan.model_folder), trust_remote_code=False)

    def count_tokens(messages: Messages) -> int:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return len(tokenizer.encode(text, add_special_tokens=False))

    requests = read_labelled(plan.data)
    return choose(requests, plan.num_questions, plan.seed, (context, count_tokens))


def _stack_plan(folder: Path, plan: RagPlan) -> StackPlan:
    environment = {
        "NG_CONFIG_DIR": str(folder),
        "NG_CONFIG_STORE": "files",
        "NG_ENCODER_TIMEOUT_S": f"{ENCODER_S:g}",
        "NG_WORKER_MODEL": str(plan.model_folder),
        "NG_WORKER_SERVED_NAME": MODEL,
        "NG_WORKER_THREADS": "1",
        "NG_WORKER_MAX_CONTEXT": str(CONTEXT),
    }
    return StackPlan(free_port(), free_port(), free_port(), None, environment)


async def _dtype(worker_url: str) -> str:
    async with aiohttp.ClientSession(worker_url) as session, session.get("/v1/models") as response:
        return str((await response.json())["data"][0]["gravity"]["dtype"])
