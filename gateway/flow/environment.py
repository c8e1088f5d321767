"""What this gateway is, for the record of every turn. The worker's part comes with its capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

from gateway.settings import GatewaySettings


def own_environment(settings: GatewaySettings, selector_version: str) -> Mapping[str, Any]:
    """Return what of the gateway itself bears on an answer. Made once, shared by all turns."""
    remote = {"remote_encoder": settings.encoder_remote_model} if settings.encoder_url else {}
    return MappingProxyType(
        {
            "version": version("narrative-gravity"),
            "selector": selector_version,
            "encoder": settings.encoder_model,
            **remote,
        }
    )
