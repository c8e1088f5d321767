"""transformers' continuous batching behind the least of a server: token ids in, an event a token out.

``python -m gateway.bench.serve.continuous MODEL_FOLDER PORT THREADS SEQUENCES``. ``transformers serve`` takes
text only and is not to be told to ignore an end; what it adds to the cost is left out here, in its favour.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import orjson
import torch
from aiohttp import web

from gateway.stack.ports import LOOPBACK

MAX_BATCH_TOKENS = 512
NUM_PAGES = 512
NEVER = -1


class ContinuousBatching:
    """The manager, and the handler that speaks for it."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._num_requests = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer /v1/completions with a stream; anything else of the surface is not here."""
        body = orjson.loads(await request.read())
        outputs: asyncio.Queue[Any] = asyncio.Queue()
        self._num_requests += 1
        name = f"bench-{self._num_requests}"
        self._manager.register_result_handler(name, outputs.put_nowait)
        self._manager.add_request(
            body["prompt"],
            request_id=name,
            max_new_tokens=body["max_tokens"],
            streaming=True,
            eos_token_id=NEVER,
        )
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        output = await outputs.get()
        while True:
            if output.error is not None:
                await response.write(_event({"error": {"message": output.error}}))
                break
            await response.write(_event({"choices": [{"text": "", "index": 0}]}))
            if output.is_finished():
                usage = {"completion_tokens": len(output.generated_tokens)}
                await response.write(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
                break
            output = await outputs.get()
        return response


def main() -> None:
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    folder, port, num_threads, num_sequences = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(num_threads)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        trust_remote_code=False,
        use_safetensors=True,
    ).eval()
    generation = GenerationConfig(do_sample=False, eos_token_id=NEVER, pad_token_id=0)
    batching = ContinuousBatchingConfig(
        num_blocks=NUM_PAGES,
        max_batch_tokens=MAX_BATCH_TOKENS,
        max_requests_per_batch=num_sequences,
    )
    with torch.inference_mode():
        manager = model.init_continuous_batching(generation, batching)
        manager.start()
    try:
        asyncio.run(_serve(ContinuousBatching(manager), port))
    finally:
        manager.stop(block=True)


async def _serve(batching: ContinuousBatching, port: int) -> None:
    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_post("/v1/completions", batching.complete)
    runner = web.AppRunner(app, handle_signals=True)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, port).start()
    print(json.dumps({"event": "ready", "url": f"http://{LOOPBACK}:{port}"}), flush=True)
    try:
        await asyncio.Event().wait()
    except web.GracefulExit:
        await runner.cleanup()


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


if __name__ == "__main__":
    main()
