"""Ports in use are an error that says what to do."""

from __future__ import annotations

import socket

import pytest

from gateway.errors import StackError
from gateway.stack.ports import free_port, require_free
from gateway.stack.stack import StackPlan


def test_a_port_in_use_names_its_purpose_and_the_option() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port}, meant for the worker.*--worker-port"):
            require_free(port, "worker", "--worker-port")


def test_a_free_port_is_free() -> None:
    require_free(free_port(), "gateway", "--port")


def test_a_plan_with_a_redis_of_its_own_needs_no_valkey_port() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        StackPlan(free_port(), free_port(), taken, redis_url="redis://elsewhere:6379/0").check_ports()
        with pytest.raises(StackError, match="embedded Valkey"):
            StackPlan(free_port(), free_port(), taken).check_ports()
