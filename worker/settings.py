"""Settings of a worker process, from the environment: ``NG_WORKER_…`` and the shared ``NG_REDIS_URL``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis import Redis

from worker.models import BUNDLED_MODEL, cache_folder

Dtype: TypeAlias = Literal["auto", "bf16", "fp32"]
WeightFormat: TypeAlias = Literal["full", "int8"]
KernelChoice: TypeAlias = Literal["auto", "torch"]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0 * 366)]

MIB = 1 << 20


def _available_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerSettings(BaseSettings):
    """One worker process. ``NG_WORKER_PORT=0`` takes a free port; the ready line names it."""

    model_config = SettingsConfigDict(
        env_prefix="NG_WORKER_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    model: str = BUNDLED_MODEL
    """A folder, a Hugging Face id in the local cache, or the bundled model."""
    served_name: str | None = None
    """The name that requests use; by default the model's own."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8081
    dtype: Dtype = "auto"
    weights: WeightFormat = "full"
    """``int8`` is faster and changes what the model says; ``docs/benchmarks.md`` has the loss."""
    kernels: KernelChoice = "auto"
    """``auto`` takes the worker's own where they run, ``torch`` keeps to PyTorch's and oneDNN's."""
    threads: Count = Field(default_factory=_available_cpus)
    max_batch: Count = 32
    """Sequences that decode together; the others wait."""
    max_context: Count = 4096
    """Positions of one sequence, prompt and completion together."""
    prefill_chunk: Count = 256
    scheduler: Literal["fcfs", "shortest", "entropic"] = "fcfs"
    """Who comes first where not all can run: first come, least work left, most resolved for its cost."""
    kv_tokens: Count | None = None
    """What all running sequences may hold together, at least one full context; by default all of theirs."""
    prefix_cache_tokens: Annotated[int, Field(ge=0)] = 16_384
    """What is kept of prompts' beginnings for requests that begin alike; 0 keeps nothing."""
    max_draft: Annotated[int, Field(ge=0, le=64)] = 16
    """Tokens that are drafted for one sequence in one step, where it asks for speculation; 0 drafts none."""
    max_waiting: Annotated[int, Field(ge=0)] = 512
    """Sequences that may wait beyond ``max_batch``; more are refused with 429."""
    max_body_bytes: Count = 16 * MIB
    max_url_bytes: Annotated[int, Field(ge=256)] = 8 * 1024
    max_head_bytes: Annotated[int, Field(ge=1024)] = 32 * 1024
    """Names and values of a request's headers together."""
    head_timeout_s: Seconds = 10.0
    """From a connection's begin, or a later request's first byte, to the end of the headers."""
    body_timeout_s: Seconds = 120.0
    """For the whole body, as far as the worker does not let it wait itself."""
    ping_s: Seconds = 15.0
    """A comment goes out on a stream that was silent for so long."""
    write_timeout_s: Seconds = 60.0
    """A client that takes nothing of its answer for so long has stopped reading: its generation ends."""
    drain_s: Seconds = 30.0
    """After SIGTERM running streams may finish for so long."""

    redis_url: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("NG_REDIS_URL", "redis_url")
    )
    """Where traces go; without it none are kept."""
    redis_url_file: Path | None = Field(
        default=None, validation_alias=AliasChoices("NG_REDIS_URL_FILE", "redis_url_file")
    )
    trace_timeout_s: Seconds = 1.0
    """Redis is taken as away after so long without an answer. Tokens never wait for it."""
    trace_ttl_s: Seconds = 7 * 86_400.0
    trace_max_entries: Count = 20_000
    """Entries kept of one turn's trace."""
    trace_max_queued_steps: Count = 65_536
    spill_dir: Path = Field(default_factory=lambda: cache_folder() / "spill")
    spill_max_bytes: Count = 64 * MIB

    @model_validator(mode="after")
    def _one_context_has_room(self) -> Self:
        if self.kv_tokens is not None and self.kv_tokens < self.max_context:
            raise ValueError("NG_WORKER_KV_TOKENS must be at least NG_WORKER_MAX_CONTEXT")
        return self

    @model_validator(mode="after")
    def _address_can_be_parsed(self) -> Self:
        try:
            address = self.redis_address()
        except OSError as error:
            raise ValueError(f"NG_REDIS_URL_FILE cannot be read: {error.strerror}") from None
        if address is not None:
            try:
                Redis.from_url(address).close()  # parses it, and connects to nothing
            except ValueError:  # whose words may be a part of the password
                raise ValueError(
                    "NG_REDIS_URL is no address of Redis; in a password, / : @ # and % are percent-encoded"
                ) from None
        return self

    def redis_address(self) -> str | None:
        """The Redis URL, from the environment or from the file that holds the secret."""
        if self.redis_url is not None:
            return self.redis_url.get_secret_value() or None
        if self.redis_url_file is not None:
            return self.redis_url_file.read_text().strip() or None
        return None
