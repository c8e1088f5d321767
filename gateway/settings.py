"""Process settings from the environment: addresses, secrets, limits. Behaviour lives in ``configs/``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.addresses import Network, check_url

TextRetention: TypeAlias = Literal["full", "hashed", "none"]
ConfigStoreKind: TypeAlias = Literal["files", "redis"]
Keyless: TypeAlias = Literal["loopback", "anyone", "nobody"]
LaneOverride: TypeAlias = Literal["auto", "anyone", "admin"]

Share = Annotated[float, Field(gt=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]
Bucket = Annotated[int, Field(ge=0, le=63)]


def _state_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NG_CACHE_DIR") or Path(base) / "narrative-gravity") / "state"


class _SecretFiles(PydanticBaseSettingsSource):
    """``NG_NAME_FILE=/path`` is read where ``NG_NAME`` would be, as container secrets are mounted."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        path = self.current_state.get(f"{field_name}_file")
        return (Path(path).read_text().strip() if path else None), field_name, False

    def __call__(self) -> dict[str, Any]:
        values = {}
        for name, info in self.settings_cls.model_fields.items():
            value, key, _ = self.get_field_value(info, name)
            if value is not None:
                values[key] = value
        return values


def check_worker_url(url: str, allowed: Sequence[Network] = ()) -> None:
    """Raise ValueError where ``url`` cannot be a worker's address, of the settings or registered later."""
    check_url(url, "a worker's address", allowed)


class GatewaySettings(BaseSettings):
    """Every variable is ``NG_`` and the field's name in capitals; secrets may come as ``NG_…_FILE``."""

    model_config = SettingsConfigDict(
        env_prefix="NG_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """0 takes a free port; the ready line says which."""
    config_dir: Path = Path("configs")
    """The documents of the store ``files``; what an empty ``redis`` namespace begins with."""
    config_store: ConfigStoreKind = "files"
    """Where the configuration in force lives: ``config_dir``, or the Redis that all gateways share."""
    config_namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "default"
    """Gateways with one namespace have one configuration."""
    config_poll_s: Annotated[float, Field(gt=0.0, le=60.0)] = 1.0
    """A change is noticed at once where the bell rings, and within this time where it does not."""
    state_dir: Path = Field(default_factory=_state_folder)
    """Where the last good configuration of a ``redis`` namespace is kept for a start without Redis."""
    config_jump_strength: Annotated[float, Field(gt=0.0)] = 1.0
    """A larger change of gravity_strength at once needs force and a reason, or a share of traffic first."""
    config_jump_temperature: Annotated[float, Field(gt=0.0)] = 0.3
    config_jump_k_factor: Annotated[float, Field(gt=1.0)] = 2.0
    config_jump_budget_factor: Annotated[float, Field(gt=1.0)] = 2.0
    replica_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{0,128}$")] = ""
    """This gateway's name in ``gravity config status``; by default its host and process."""

    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    redis_url_file: str | None = None
    redis_timeout_s: Seconds = 1.0

    allowed_networks: Annotated[tuple[Network, ...], NoDecode] = ()
    """Networks such as 169.254.10.0/24, separated by commas: workers, encoders and the collector
    may be there although link-local and metadata addresses are refused."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins such as https://app.example, separated by commas, whose pages may call /v1. By default none."""

    workers: Annotated[tuple[str, ...], NoDecode] = ("http://127.0.0.1:8081",)
    """Base URLs, separated by commas."""
    worker_buckets: dict[str, tuple[Bucket, ...]] = {}
    """Which buckets a worker of these is for, as a JSON object by URL; the others are for all."""
    worker_api_key: SecretStr | None = None
    """Sent to workers as a bearer token; a client's own key never is."""
    worker_api_key_file: str | None = None
    probe_interval_s: Seconds = 2.0
    probe_timeout_s: Seconds = 2.0
    connect_timeout_s: Seconds = 3.0
    first_token_timeout_s: Seconds = 120.0
    """How long a worker may take to begin to answer: queueing and prefill."""
    idle_timeout_s: Seconds = 60.0
    """Longest silence inside a stream."""
    request_timeout_s: Seconds = 600.0
    """A whole answer that is not streamed."""
    begin_timeout_s: Seconds = 150.0
    """All that comes before an answer's first byte together: pruning, the queue, every attempt. Where an
    answer is not streamed it is ``request_timeout_s`` if that is longer."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    worker_concurrency: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Turns of this gateway at one worker at once; 0: any number, and nobody waits here."""
    queue_limit: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Turns that wait where every worker is full, for each bucket; 0: none does, the answer is 429."""
    queue_timeout_s: Seconds = 30.0
    """How long a turn may wait there."""
    queue_ageing_s: Seconds = 10.0
    """So much waiting is worth one step of priority."""
    shed_at: Annotated[tuple[Share, ...], NoDecode, Field(max_length=4)] = (0.25, 0.5, 0.75, 0.9)
    """The queue's fill from which budgets shrink, shadows stop, n > 1 and low priority are refused; empty:
    never. Without a queue nothing of it happens."""
    shed_budget_factor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """What is left then of a task's token budget."""
    shed_token_budget: Annotated[int, Field(ge=16)] = 2_048
    """What the documents of a task without a token budget may take then."""
    affinity_chars: Annotated[int, Field(ge=0, le=1_000_000)] = 1_024
    """Prompts alike in so many first characters prefer one worker, whose cache has them; 0: none does."""
    patience_factor: Annotated[float, Field(ge=0.0, le=1_000.0)] = 3.0
    """A worker silent for so many times its usual time to begin is raced by another; 0: none ever is."""
    patience_floor_s: Seconds = 2.0
    patience_ceiling_s: Seconds = 30.0
    """Also what a stream gets while nothing is known; never above ``first_token_timeout_s``."""
    breaker_failures: Annotated[int, Field(ge=1, le=100)] = 3
    breaker_cooldown_s: Seconds = 5.0

    otel_endpoint: str | None = None
    """Base URL of an OpenTelemetry collector that takes OTLP over HTTP; unset, nothing is traced.
    Its key belongs into ``OTEL_EXPORTER_OTLP_HEADERS``."""
    otel_sample_ratio: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Share of the traces that begin here; ``OTEL_TRACES_SAMPLER`` replaces it."""
    otel_prompt_text: bool = False
    """Put prompts and answers into spans."""

    opaque_logprobs: bool = True
    """Ask opaque workers for the likeliest tokens of each step, and estimate H from them."""
    opaque_vocabulary_size: Annotated[int, Field(ge=2, le=10_000_000)] = 262_144
    """Taken where nobody says how large an opaque worker's vocabulary is: too large bounds H loosely, too
    small wrongly."""
    opaque_vocabulary_sizes: dict[str, Annotated[int, Field(ge=2, le=10_000_000)]] = {}
    """By model, as a JSON object."""
    opaque_tokenizers: dict[str, str] = {}
    """By model, as a JSON object: a folder with a tokenizer.json, or an id in the local Hugging Face cache.
    Spells a task's words for opaque workers that have no /tokenize."""

    admin_key: SecretStr | None = None
    """All of /admin. Without any of the three keys, /admin is for the loopback address only."""
    admin_key_file: str | None = None
    config_key: SecretStr | None = None
    """/admin/config alone, reading and publishing: what a deployment pipeline gets."""
    config_key_file: str | None = None
    read_key: SecretStr | None = None
    """GET under /admin alone: what a dashboard gets."""
    read_key_file: str | None = None
    keys_file: Path | None = None
    """Keys for clients, hashes only; read beside those that the commands put into Redis."""
    keyless: Keyless = "loopback"
    """Who may do without a key while none is configured: whoever is on this machine, anyone (/v1 alone), or
    nobody."""
    limit_timeout_s: Seconds = 0.01
    """How long a request of a limited key waits for Redis before the limits of this gateway alone count."""
    lease_s: Annotated[float, Field(ge=0.1, le=3_600.0)] = 30.0
    """How long the turns of a gateway that died still count as open."""
    lane_override: LaneOverride = "auto"
    """Who may send X-Gravity-Lane. auto: whoever holds the admin key; without one, the loopback address."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    max_nesting: Annotated[int, Field(ge=4, le=246)] = 246
    """Levels of lists and objects in each other, the body itself included."""
    max_messages: Annotated[int, Field(ge=1)] = 10_000
    max_documents: Annotated[int, Field(ge=0)] = 10_000
    max_document_chars: Annotated[int, Field(ge=1)] = 4_000_000
    """Of one document. What is over one of these is a 400 that names the field."""
    max_url_bytes: Annotated[int, Field(ge=256)] = 8 * 1024
    max_head_bytes: Annotated[int, Field(ge=1024)] = 32 * 1024
    """Names and values of a request's headers together."""
    head_timeout_s: Seconds = 10.0
    """From a connection's begin, or a later request's first byte, to the end of the headers."""
    body_timeout_s: Seconds = 120.0
    """For the whole body, as far as the gateway does not let it wait itself."""

    preload_encoder: bool = True
    """Load the encoder while the gateway starts; otherwise the first request with documents waits for it."""
    encoder_model: Annotated[str, Field(min_length=1)] = "all-MiniLM-L6-v2"
    """The bundled encoder, a folder, or an id in the local Hugging Face cache."""
    encoder_scripts: Literal["latin", "any"] = "latin"
    """What ``encoder_model`` can read. Other documents are kept, or judged by the remote encoder."""
    encoder_precision: Literal["auto", "bf16", "fp32"] = "auto"
    """auto: whichever of the two this processor multiplies faster."""
    encoder_threads: Annotated[int, Field(ge=1, le=256)] = 1
    encoder_timeout_s: Seconds = 20.0
    """A request waits for its encodings so long and then goes on unpruned."""
    encoder_cache_bytes: Annotated[int, Field(ge=0)] = 256 * 2**20
    """Encodings kept in this process, of each encoder; a chunk of 100 tokens takes about 90 kB."""
    encoder_redis_cache: bool | None = None
    """Share encodings over Redis. Unset: where ``text_retention`` is full, as texts can be read from them."""
    encoder_redis_ttl_s: Annotated[int, Field(ge=1)] = 7 * 86_400
    encoder_redis_timeout_s: Seconds = 0.05
    """A request waits so long for what Redis has of its texts, and then encodes them."""
    encoder_url: str | None = None
    """A server with OpenAI's /v1/embeddings, for the scripts that ``encoder_model`` cannot read, and for
    tasks that ask for it."""
    encoder_api_key: SecretStr | None = None
    """Sent to ``encoder_url`` as a bearer token."""
    encoder_api_key_file: str | None = None
    encoder_remote_model: Annotated[str, Field(min_length=1)] = "default"
    """What ``encoder_url`` calls its model. Give another model another name: encodings are kept by it."""

    selector: Path | None = None
    """What ``gravity train context`` wrote; unset, what comes with the package."""

    ping_interval_s: Seconds = 15.0
    write_timeout_s: Seconds = 30.0
    """A client that takes nothing of its answer for so long has stopped reading: its turn ends."""
    drain_s: Annotated[float, Field(ge=0.0, le=3_600.0)] = 30.0
    """How long open answers may go on after SIGTERM."""

    text_retention: TextRetention = "full"
    """What becomes of prompt and answer in a turn's record; replay needs ``full``."""
    record_ttl_s: Annotated[int, Field(ge=60)] = 7 * 86_400
    max_turns: Annotated[int, Field(ge=1)] = 100_000
    """Bound of the stream ng:turns."""
    max_outcomes: Annotated[int, Field(ge=1_000)] = 200_000
    """Bound of an experiment's stream of exposures and outcomes."""
    outcome_ttl_s: Annotated[int, Field(ge=3_600)] = 90 * 86_400
    """How long after its last turn an experiment's outcomes are kept."""
    max_shadows: Annotated[int, Field(ge=0, le=1_000)] = 2
    """Shadow turns that run at once; more are left out and counted."""
    guardrail_interval_s: Seconds = 30.0
    """How often one of the gateways looks at the guardrails of the active experiments."""
    record_queue: Annotated[int, Field(ge=1)] = 1_000
    """Records that wait while Redis is away; the oldest beyond it is dropped and counted."""
    max_record_bytes: Annotated[int, Field(ge=1024)] = 4 * 1024 * 1024
    """A record above this is written without its texts."""
    entropy_weight: Annotated[float, Field(gt=0.0, le=1.0)] = 0.05
    """Weight of a new turn in a task's running mean of s."""

    @field_validator("shed_at", mode="before")
    @classmethod
    def _shares(cls, value: object) -> object:
        return tuple(filter(None, value.split(","))) if isinstance(value, str) else value

    @field_validator("shed_at")
    @classmethod
    def _rising(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if list(shares) != sorted(set(shares)):
            raise ValueError("each step of shedding begins later than the one before")
        return shares

    @field_validator("workers", "allowed_networks", "cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, (list, tuple)):
            return tuple(str(part).strip().rstrip("/") for part in parts if str(part).strip())
        return parts

    @field_validator("workers")
    @classmethod
    def _addresses(cls, workers: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for url in workers:
            check_worker_url(url, info.data.get("allowed_networks", ()))
        if len(set(workers)) != len(workers):
            raise ValueError("a worker is named twice")
        return workers

    @field_validator("worker_buckets")
    @classmethod
    def _of_known_workers(
        cls, buckets: dict[str, tuple[int, ...]], info: ValidationInfo
    ) -> dict[str, tuple[int, ...]]:
        by_url = {url.rstrip("/"): named for url, named in buckets.items()}
        if unknown := by_url.keys() - set(info.data.get("workers", ())):
            raise ValueError(f"NG_WORKERS does not name {', '.join(sorted(unknown))}")
        return by_url

    @field_validator("redis_url")
    @classmethod
    def _redis_address(cls, url: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(url.get_secret_value())
            is_good = parts.port != 0 and parts.scheme in ("redis", "rediss", "unix")
        except ValueError:  # whose words may be a part of the password
            is_good = False
        if not is_good:
            raise ValueError("no address of Redis; in a password, / : @ # and % are percent-encoded")
        return url

    @field_validator("encoder_url")
    @classmethod
    def _encoder_address(cls, url: str | None, info: ValidationInfo) -> str | None:
        if not url:
            return None
        check_url(url, "an encoder's address", info.data.get("allowed_networks", ()))
        return url.rstrip("/").removesuffix("/v1")

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            check_url(origin, "an origin")
            if urlsplit(origin).path:
                raise ValueError("an origin is a scheme, a host and perhaps a port")
        return origins

    @field_validator("otel_endpoint")
    @classmethod
    def _collector_address(cls, url: str | None, info: ValidationInfo) -> str | None:
        if not url:
            return None
        check_url(url, "a collector's address", info.data.get("allowed_networks", ()))
        return url.rstrip("/")

    @field_validator("encoder_api_key")
    @classmethod
    def _printable(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not (
            key.get_secret_value().isascii() and key.get_secret_value().isprintable()
        ):
            raise ValueError("a key has printable ASCII characters alone")
        return key

    @property
    def shares_encodings(self) -> bool:
        """Whether encodings go to Redis: as it is set, else as ``text_retention`` allows."""
        if self.encoder_redis_cache is None:
            return self.text_retention == "full"
        return self.encoder_redis_cache

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _SecretFiles(settings_cls)
