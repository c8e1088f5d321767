"""transformers' ``generate`` in a process of its own: messages a line in, its text a line out.

``python -m gateway.bench.rag.generate MODEL_FOLDER DTYPE THREADS``. It is spared what ours has beside:
HTTP, a queue, records.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson

NEVER = -1
"""No token ends a text: all are written to their full length, here as at the worker."""


def main() -> None:
    """Say that it is ready, then answer until the input ends."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils.logging import disable_progress_bar

    folder, dtype, num_threads = sys.argv[1], getattr(torch, sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(num_threads)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa", trust_remote_code=False, use_safetensors=True
    ).eval()
    _say({"ready": True})
    for line in sys.stdin.buffer:
        asked: dict[str, Any] = orjson.loads(line)
        text = tokenizer.apply_chat_template(asked["messages"], tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")
        greedy = GenerationConfig(
            do_sample=False, max_new_tokens=asked["max_tokens"], eos_token_id=NEVER, pad_token_id=0
        )
        with torch.inference_mode():
            written = model.generate(**prompt, generation_config=greedy)[0, prompt["input_ids"].shape[1] :]
        told = {
            "text": tokenizer.decode(written, skip_special_tokens=True),
            "prompt_tokens": prompt["input_ids"].shape[1],
            "completion_tokens": len(written),
        }
        _say(told)


def _say(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(told) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
