"""``gravity chaos run`` for a few seconds, and how it judges."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from gateway.chaos.endings import Ending
from gateway.chaos.memory import WARM_S, num_connections, rise_mib
from gateway.chaos.place import Away, Place
from gateway.chaos.publishing import broken_links
from gateway.chaos.site import Site
from gateway.chaos.steps import StepLoss, step_loss
from gateway.settings import GatewaySettings
from gateway.stack.child import Command
from gateway.stack.leash import Leash
from gateway.store.centre import Change

if TYPE_CHECKING:
    from tests.conftest import StartCommand


def test_a_short_run_under_faults_ends_with_every_turn_accounted_for(
    start_command: StartCommand, tmp_path: Path
) -> None:
    report = tmp_path / "chaos.json"
    arguments = ["chaos", "run", "--minutes", "0.15", "--seed", "5", "--json", str(report)]
    running = start_command(arguments, {})
    assert running.process.wait(240.0) == 0, running.output
    found = json.loads(report.read_bytes())
    assert found["is_good"] is True
    assert found["problems"] == []
    assert len(found["faults"]) >= 1
    assert found["num_published"] >= 1
    ends = [end for counts in found["turns"].values() for end in counts]
    assert "answered" in ends
    assert "wrong" not in ends


def change(number: int, from_sha: str, to_sha: str) -> Change:
    return Change(number, "publish", from_sha, to_sha, "chaos", "a run", 0.0)


def test_a_history_that_skips_a_number_or_a_version_is_no_chain() -> None:
    whole = [change(1, "", "a"), change(2, "a", "b"), change(3, "b", "c")]
    assert broken_links(whole) == []
    assert broken_links([whole[0], whole[2]]) == ["change 3 does not follow 1"]
    assert broken_links([*whole, change(4, "b", "d")]) == ["change 4 does not follow 3"]


def test_steps_that_are_missing_must_have_been_counted() -> None:
    assert StepLoss(missing=7).problems(7.0) == []
    assert StepLoss(missing=7).problems(6.0) != []
    assert StepLoss(missing=7).problems(8.0) != []
    assert StepLoss(missing=7, excused=3).problems(9.0) == []
    assert StepLoss(missing=7, excused=3).problems(11.0) != []
    assert StepLoss(missing=7, num_unknown=1).problems(207.0) == []
    assert StepLoss(missing=7, num_unknown=1).problems(208.0) != []
    assert StepLoss(doubled=1).problems(0.0) == ["1 trace steps are there twice"]


def test_memory_that_rises_by_a_mebibyte_a_second_after_warm_up_is_seen() -> None:
    samples = [(float(second), (500 if second < WARM_S else second) * 2**20) for second in range(200)]
    assert round(rise_mib(samples), 3) == 199 - WARM_S
    assert rise_mib([(float(second), 2**20) for second in range(200)]) == pytest.approx(0.0, abs=1e-9)
    in_flight = [(float(second), 2**20 * (1 + second % 9 * second)) for second in range(200)]
    assert rise_mib(in_flight) == pytest.approx(0.0, abs=1e-9), "what comes and goes is no leak"
    filled = [(float(second), min(second, 120) * 2**20) for second in range(260)]
    assert rise_mib(filled) > 20.0
    assert rise_mib(filled, warm_s=120.0) == pytest.approx(0.0, abs=1e-9), "what is full grows no more"


def test_a_turn_without_an_id_may_have_lost_steps_only_while_valkey_was_away(valkey_url: str) -> None:
    with Leash() as leash:
        valkey = Place(Command("valkey", ()), leash, 1, away=[Away(10.0, 20.0, was_killed=False)])
        site = Site(valkey, (), (), GatewaySettings())
        endings = [
            Ending("leaving", "left", "", "gateway-1", "", 12.0, 13.0),
            Ending("leaving", "left", "", "gateway-1", "", 1.0, 2.0),
            Ending("leaving", "left", "", "gateway-1", "", 21.0, 22.0),
            Ending("whole", "refused", "503 no_workers", "gateway-1", "", 12.0, 13.0),
        ]

        async def found() -> StepLoss:
            async with Redis.from_url(valkey_url) as redis:
                return await step_loss(redis, endings, site)

        assert asyncio.run(found()) == StepLoss(num_unknown=1)


def test_a_connection_that_its_client_has_closed_counts_until_the_server_closes_it_too() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        held, _ = server.accept()
        assert num_connections(port) == 1
        client.close()
        assert held.recv(1) == b""
        assert num_connections(port) == 1
        held.close()
        assert num_connections(port) == 0
