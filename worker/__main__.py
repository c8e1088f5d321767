"""``python -m worker``: loads the model, serves it, and says so with one JSON line on stdout."""

from __future__ import annotations

import logging
import os
import sys

from pydantic import ValidationError

from worker.logs import configure_logging
from worker.models import ModelNotFoundError, resolve_model
from worker.redaction import secrets_in
from worker.settings import WorkerSettings

log = logging.getLogger("worker")

MAX_PREPARED = "256"
"""Products that oneDNN and PyTorch's layer above it keep prepared, one for each number of rows and shape.

As many as a decoding batch of up to 32 needs. Their own 1,024 hold 470 MB; to prepare one takes 0.7 ms.
"""


def main() -> int:
    """Serve until SIGTERM; returns the exit status."""
    configure_logging()
    try:
        settings = WorkerSettings()
        configure_logging(secrets=secrets_in([settings.redis_address() or ""]))
        _prepare_torch(settings.threads)
        folder = resolve_model(settings.model)
    except (ValidationError, ModelNotFoundError) as error:
        log.error("the worker cannot start: %s", error)
        return 2

    # Only now: what follows imports torch, which reads the thread settings once.
    from worker.server.process import serve

    return serve(settings, folder)


def _prepare_torch(num_threads: int) -> None:
    """Spinning threads on a busy machine make a step many times slower, so they sleep instead."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", MAX_PREPARED)
    os.environ.setdefault("LRU_CACHE_CAPACITY", MAX_PREPARED)
    os.environ["OMP_NUM_THREADS"] = str(num_threads)


if __name__ == "__main__":
    sys.exit(main())
