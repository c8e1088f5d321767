"""``gravity example NAME``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

import httpx
from redis.exceptions import RedisError
from rich.console import Console

from gateway.errors import ExampleError
from gateway.examples import adaptive_k, keyword_gravity
from gateway.examples.laboratory import Sampling, laboratory
from gateway.stack.signals import until_signal


@dataclass(frozen=True, slots=True)
class ExampleOptions:
    """Without both URLs a worker and a Valkey are started for the time of the example."""

    name: Literal["adaptive-k", "keyword-gravity"]
    worker_url: str | None
    redis_url: str | None
    seed: int


def run_example(options: ExampleOptions) -> int:
    """Run and show it; 0 where it went through. Raises CommandError otherwise."""
    try:
        asyncio.run(until_signal(_run(options)))
    except (httpx.HTTPError, RedisError) as error:
        raise ExampleError(f"the worker or its Redis does not answer: {error!r}") from error
    return 0


async def _run(options: ExampleOptions) -> None:
    console = Console(highlight=False)
    async with laboratory(options.worker_url, options.redis_url) as running:
        if options.name == "adaptive-k":
            adaptive_k.show(console, await adaptive_k.run(running, Sampling(options.seed, 40)))
        else:
            sampling = Sampling(options.seed, 64, num_choices=16, top_p=0.95)
            keyword_gravity.show(console, await keyword_gravity.run(running, sampling))
