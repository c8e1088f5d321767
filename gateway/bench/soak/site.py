"""The processes of a soak: Valkey, a worker that is short of everything, and the gateway."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from gateway.chaos.place import Place
from gateway.chaos.site import Site
from gateway.settings import GatewaySettings
from gateway.stack.child import Command
from gateway.stack.environment import child_environment, config_folder
from gateway.stack.leash import Leash
from gateway.stack.ports import LOOPBACK, free_port, valkey_url
from gateway.stack.valkey import valkey_command

MAX_CONTEXT = 1024
MAX_BODY_BYTES = 1 << 20
WORKER_SETTINGS = {
    "NG_WORKER_THREADS": "1",
    "NG_WORKER_MAX_CONTEXT": str(MAX_CONTEXT),
    "NG_WORKER_MAX_BATCH": "6",
    "NG_WORKER_MAX_WAITING": "6",
    # Two of six slots' full contexts: sequences are put out, and go on later.
    "NG_WORKER_KV_TOKENS": str(2 * MAX_CONTEXT),
    # Full within the warm-up: what fills slowly up to its bound looks like a leak.
    "NG_WORKER_PREFIX_CACHE_TOKENS": "1024",
    "NG_WORKER_SCHEDULER": "entropic",
    "NG_WORKER_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
}
GATEWAY_SETTINGS = {
    "NG_CONFIG_STORE": "files",
    "NG_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
    "NG_MAX_RECORD_BYTES": "65536",
    # Longer than turns take on a machine that others keep busy: what ends too late is seen by the clients.
    "NG_FIRST_TOKEN_TIMEOUT_S": "900",
    "NG_BEGIN_TIMEOUT_S": "900",
    "NG_IDLE_TIMEOUT_S": "900",
    "NG_REQUEST_TIMEOUT_S": "900",
}
MAX_LINES = 20
DRAFTED = "drafted"
"""A task that speculates, beside those that are configured."""
_DRAFTED = f"task_type: {DRAFTED}\ngravity_strength: 0\nspeculation: {{mode: entropy}}\n"


@dataclass(slots=True)
class ErrorLines:
    """Collects the lines at which a process says that something went wrong with it."""

    lines: list[str] = field(default_factory=list)

    def take(self, name: str, line: str) -> None:
        is_error = '"level": "error"' in line or '"level":"error"' in line or line.startswith("Traceback")
        if is_error and len(self.lines) < MAX_LINES:
            self.lines.append(f"{name} says: {line[:500]}")


def site_of_soak(folder: Path, errors: ErrorLines, leash: Leash) -> Site:
    """Return one worker and one gateway with the configuration that is here and a task more."""
    store, behind, front = (free_port() for _ in range(3))
    configs = folder / "configs"
    shutil.copytree(config_folder(), configs)
    (configs / "tasks" / f"{DRAFTED}.yaml").write_text(_DRAFTED)
    own = child_environment(configs) | {"NG_REDIS_URL": valkey_url(store)}
    worker = WORKER_SETTINGS | {
        "NG_WORKER_HOST": LOOPBACK,
        "NG_WORKER_PORT": str(behind),
        "NG_WORKER_SPILL_DIR": str(folder / "spill"),
    }
    gateway = GATEWAY_SETTINGS | {
        "NG_HOST": LOOPBACK,
        "NG_PORT": str(front),
        "NG_WORKERS": f"http://{LOOPBACK}:{behind}",
        "NG_STATE_DIR": str(folder / "state"),
    }

    def place(name: str, module: str, settings: dict[str, str], port: int) -> Place:
        command = Command(name, (sys.executable, "-m", module), own | settings)
        return Place(command, leash, port, on_line=errors.take)

    return Site(
        Place(valkey_command(store), leash, store, tells_ready=False),
        (place("worker", "worker", worker, behind),),
        (place("gateway", "gateway", gateway, front),),
        GatewaySettings(redis_url=own["NG_REDIS_URL"], config_dir=configs),
    )
