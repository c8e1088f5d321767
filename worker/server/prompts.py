"""From messages and text to token ids, on a thread of its own: a long prompt delays nobody's tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jinja2.exceptions import TemplateError

from worker.errors import RequestError
from worker.server.schema import Message

T = TypeVar("T")

_TEMPLATE_ROLES = {"developer": "system"}


class PromptEncoder:
    """The model's tokenizer and chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # One thread: the tokenizer's settings are not safe to change from two.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")

    async def chat(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> list[int]:
        """Render the messages by the model's template. Raises RequestError where it refuses them."""
        return await self.run(lambda: self._chat(messages, add_generation_prompt))

    async def text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return await self.run(lambda: self._encode([text], add_special_tokens)[0])

    async def texts(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        return await self.run(lambda: self._encode(texts, add_special_tokens))

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something else that needs the tokenizer, on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _chat(self, messages: Sequence[Message], add_generation_prompt: bool) -> list[int]:
        rendered = [
            {"role": _TEMPLATE_ROLES.get(message.role, message.role), "content": message.text}
            for message in messages
        ]
        try:
            text = self._tokenizer.apply_chat_template(
                rendered, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise RequestError(
                f"the model's chat template refuses the messages: {error}", param="messages"
            ) from error
        return self._encode([text], False)[0]

    def _encode(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        if not texts:
            return []
        encoded: list[list[int]] = self._tokenizer(
            list(texts), add_special_tokens=add_special_tokens, return_attention_mask=False
        )["input_ids"]
        return encoded
