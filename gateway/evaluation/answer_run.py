"""The run: every request in every arm, one at a time for each worker, going on from what is there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tqdm import tqdm

from gateway.evaluation.answer_figures import Answered
from gateway.evaluation.answer_results import AnswerRecord, Key, Results
from gateway.evaluation.answering import AnsweringWorker, messages_of
from gateway.evaluation.arms import ARMS, Arm, Chooser, request_of, selector_fingerprint
from gateway.lab.labelled import LabelledRequest
from gateway.store.document import ContextSection

WARM_UP = request_of("Which colour is the boat?", ["The boat is blue.", "The house is white."])


class AnswerRun:
    """Measures what ``results`` lacks."""

    def __init__(self, chooser: Chooser, context: ContextSection, results: Results) -> None:
        self._chooser = chooser
        self._context = context
        self._results = results
        self._selector = selector_fingerprint()
        self._choosing = asyncio.Lock()  # processor time is this whole process': one choice at a time

    async def answer_all(
        self, requests: Sequence[LabelledRequest], workers: Sequence[AnsweringWorker]
    ) -> list[Answered]:
        """Return all requests with an answer in every arm, at least one; ``workers`` share the work.

        Arms take turns in a rotated order, so that a machine that gets slower or busier slows all alike.
        """
        missing = [
            (place, request) for place, request in enumerate(requests) if self._missing(place, request)
        ]
        num_missing = sum(len(self._missing(*each)) for each in missing)
        if num_outdated := self._results.num_outdated(self._selector):
            print(f"{num_outdated} answers of ours are another selector's and do not count", file=sys.stderr)
        if num_missing:
            await self._chooser.warm()
            total = len(ARMS) * len(requests)
            # Arms differ tenfold in time: only the mean over all of them tells how long it will take.
            with tqdm(
                None, "answers", total, unit="answer", initial=total - num_missing, smoothing=0
            ) as progress:
                await self._share_out(iter(missing), workers, progress)
        return [self._answered(request) for request in requests]

    async def _share_out(
        self,
        missing: Iterator[tuple[int, LabelledRequest]],
        workers: Sequence[AnsweringWorker],
        progress: tqdm[Any],
    ) -> None:
        async def work(worker: AnsweringWorker) -> None:
            await self._measure("ours", WARM_UP, worker)
            for place, request in missing:
                for arm in self._missing(place, request):
                    self._results.add(await self._measure(arm, request, worker))
                    progress.update()

        try:
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(work(worker))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures  # the first one ended the others

    async def _measure(self, arm: Arm, request: LabelledRequest, worker: AnsweringWorker) -> AnswerRecord:
        """Choose, leave out what does not fit, answer. Finding out what fits is on nobody's account."""
        async with self._choosing:
            cpu_s = worker.cpu_s()
            choice = await self._chooser.choose(arm, request, worker.count_tokens, self._context.template)
            counting_cpu_s = worker.cpu_s() - cpu_s
        num_fitting = await worker.num_fitting(request.question, choice.documents, self._context)
        shown = choice.documents[:num_fitting]
        answer = await worker.answer(messages_of(request.question, shown, self._context))
        return AnswerRecord(
            request_id=request.id,
            arm=arm,
            text=answer.text,
            num_documents=num_fitting,
            num_left_out=len(choice.documents) - num_fitting,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            ttft_s=choice.wall_s + answer.ttft_s,
            total_s=choice.wall_s + answer.total_s,
            worker_cpu_s=counting_cpu_s + answer.cpu_s,
            choose_cpu_s=choice.cpu_s,
            selector=self._selector_of(arm),
        )

    def _missing(self, place: int, request: LabelledRequest) -> list[Arm]:
        """Return the arms that are still to be measured, beginning with another one at every place."""
        first = place % len(ARMS)
        order = ARMS[first:] + ARMS[:first]
        return [arm for arm in order if self._results.get(self._key(request, arm)) is None]

    def _answered(self, request: LabelledRequest) -> Answered:
        records = {arm: self._results.get(self._key(request, arm)) for arm in ARMS}
        return Answered(request, {arm: record for arm, record in records.items() if record is not None})

    def _key(self, request: LabelledRequest, arm: Arm) -> Key:
        return Key(request.id, arm, self._selector_of(arm))

    def _selector_of(self, arm: Arm) -> str:
        return self._selector if arm == "ours" else ""
