"""From messages and text to token ids, on a thread of its own: a long prompt delays nobody's tokens."""

from __future__ import annotations

import asyncio
import re
import secrets
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
        added = tokenizer.added_tokens_decoder.values()
        special = sorted((str(token) for token in added if token.special), key=len, reverse=True)
        self._special_text = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        # One thread: the tokenizer's settings are not safe to change from two.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")

    async def chat(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> list[int]:
        """Render the messages by the model's template. Raises RequestError where it refuses them.

        Text of a message that spells a special token is read as plain text: a retrieved chunk that contains
        "<|im_end|>" cannot end its turn and begin another one.
        """
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
        contents = [message.text for message in messages]
        if not any(self._special_text.search(content) for content in contents):
            return self._encode([self._rendered(messages, contents, add_generation_prompt)], False)[0]
        marks = {f"[{secrets.token_hex(16)}]": content for content in contents}
        template = self._rendered(messages, list(marks), add_generation_prompt)
        pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", template)
        ids: list[int] = []
        for piece in pieces:
            if piece:
                ids += self._encode([marks.get(piece, piece)], False, is_plain=piece in marks)[0]
        return ids

    def _rendered(
        self, messages: Sequence[Message], contents: Sequence[str], add_generation_prompt: bool
    ) -> str:
        rendered = [
            {"role": _TEMPLATE_ROLES.get(message.role, message.role), "content": content}
            for message, content in zip(messages, contents, strict=True)
        ]
        try:
            text: str = self._tokenizer.apply_chat_template(
                rendered, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise RequestError(
                f"the model's chat template refuses the messages: {error}", param="messages"
            ) from error
        return text

    def _encode(
        self, texts: Sequence[str], add_special_tokens: bool, *, is_plain: bool = False
    ) -> list[list[int]]:
        if not texts:
            return []
        encoded: list[list[int]] = self._tokenizer(
            list(texts),
            add_special_tokens=add_special_tokens,
            split_special_tokens=is_plain,
            return_attention_mask=False,
        )["input_ids"]
        return encoded
