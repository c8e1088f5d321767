"""``gravity eval answers``: does a model answer better from what we keep, and what does it cost?"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import orjson
from rich.console import Console

from gateway.errors import CommandError, EncoderError
from gateway.evaluation.answer_figures import summarize_answers
from gateway.evaluation.answer_report import answers_as_json, print_answers
from gateway.evaluation.answer_results import Header, Results
from gateway.evaluation.answer_run import AnswerRun
from gateway.evaluation.answering import MAX_TOKENS, QUESTION, AnsweringWorker, started_worker
from gateway.evaluation.arms import Chooser, open_chooser
from gateway.lab.labelled import LabelledRequest, read_labelled
from gateway.stack.environment import config_folder
from gateway.stack.signals import until_signal
from gateway.store.document import ContextSection
from gateway.store.watch import ConfigStore

TASK = "rag_qa"


@dataclass(frozen=True, slots=True)
class AnswersOptions:
    """``results_file`` makes a run survive an interruption; ``num_workers`` processes answer side by side."""

    data: tuple[Path, ...]
    json_file: Path | None = None
    results_file: Path | None = None
    limit: int | None = None
    num_workers: int = 1
    seed: int = 0


def run_eval_answers(options: AnswersOptions) -> int:
    """Print the figures and return 0. Raises CommandError where they cannot be had."""
    requests = drawn(answerable(read_labelled(options.data)), options.seed)
    if options.json_file is not None and not options.json_file.parent.is_dir():  # hours before it is needed
        raise CommandError(f"{options.json_file} cannot be written: there is no such folder")
    return asyncio.run(until_signal(_run(options, requests)))


async def _run(options: AnswersOptions, requests: Sequence[LabelledRequest]) -> int:
    async with AsyncExitStack() as started:
        workers = [await started.enter_async_context(started_worker()) for _ in range(options.num_workers)]
        await evaluate_answers(options, requests, workers, started.enter_context(open_chooser()))
    return 0


async def evaluate_answers(
    options: AnswersOptions,
    requests: Sequence[LabelledRequest],
    workers: Sequence[AnsweringWorker],
    chooser: Chooser,
) -> None:
    """Answer the first ``limit`` of ``requests`` in every arm; print and write what came of it."""
    context = task_context()
    header = header_of(workers[0], context, requests)
    results = Results(options.results_file, header)
    try:
        run = AnswerRun(chooser, context, results)
        answered = await run.answer_all(requests[: options.limit], workers)
    except EncoderError as error:
        raise CommandError(str(error)) from error
    figures = summarize_answers(answered, options.seed)
    print_answers(Console(highlight=False), figures, header)
    if options.json_file is not None:
        written = orjson.dumps(answers_as_json(figures, header, options.seed), option=orjson.OPT_INDENT_2)
        try:
            options.json_file.write_bytes(written + b"\n")
        except OSError as error:
            raise CommandError(f"{options.json_file} cannot be written: {error.strerror}") from error


def answerable(requests: Sequence[LabelledRequest]) -> list[LabelledRequest]:
    """Return the requests that name an answer and have chunks. Raises CommandError where ids repeat."""
    usable = [request for request in requests if any(map(str.strip, request.answers)) and request.documents]
    if not usable:
        raise CommandError("no request names answers and has documents: there is nothing to score")
    if len(usable) < len(requests):
        print(f"{len(requests) - len(usable)} requests name no answer and are left out", file=sys.stderr)
    identifier, count = Counter(request.id for request in usable).most_common(1)[0]
    if count > 1:
        raise CommandError(f"{count} requests have the id {identifier!r}: results are kept by id")
    return usable


def drawn(requests: Sequence[LabelledRequest], seed: int) -> list[LabelledRequest]:
    """Return ``requests`` shuffled, so that the first few of them stand for all."""
    order = list(requests)
    random.Random(seed).shuffle(order)
    return order


def task_context() -> ContextSection:
    """Return how the task shows documents: its preamble and template, in the order as sent."""
    task = ConfigStore.open(config_folder()).snapshot.tasks.get(TASK)
    shown = task.context if task else ContextSection()
    return shown.model_copy(update={"order": "as_sent"})


def header_of(
    worker: AnsweringWorker, context: ContextSection, requests: Sequence[LabelledRequest]
) -> Header:
    """Pin what the answers of one results file must share."""
    content = [asdict(request) for request in sorted(requests, key=lambda request: request.id)]
    return Header(
        model=worker.model,
        dtype=worker.dtype,
        max_context=worker.max_context,
        max_tokens=MAX_TOKENS,
        question=QUESTION,
        preamble=context.preamble,
        template=context.template,
        data_sha=sha256(orjson.dumps(content)).hexdigest(),
    )
