"""The trace writer against a real Valkey that is killed, restarted, stopped and late."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from worker.protocol import StepRecord, unpack_steps
from worker.spill import SpillFile, TraceEntry
from worker.trace import TraceOptions, TraceWriter

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, StartValkey, WaitUntil

Entry = dict[bytes, bytes]
StartWriter = Callable[..., TraceWriter]


def step(number: int) -> StepRecord:
    """A record whose every field differs, and is exact in float32."""
    return StepRecord(
        token_id=number,
        logprob=-0.5 - number,
        entropy_nats=1.25 + number,
        normalised_entropy=0.125,
        gravity=0.875,
        varentropy=2.5,
        p_max=0.75,
        k=3 + number % 40,
        p=1.0,
        temperature=0.5,
        bias_nats=-1.5,
        entropy_after_nats=0.25,
        bucket=2,
        accepted_draft=0,
        engine_step=1000 + number,
        batch_size=4,
    )


@pytest.fixture
def options(tmp_path: Path) -> TraceOptions:
    return TraceOptions(spill_dir=tmp_path / "spill", timeout_s=0.3)


@pytest.fixture
def start_writer() -> Iterator[StartWriter]:
    writers: list[TraceWriter] = []

    def start(url: str, options: TraceOptions, **changes: Any) -> TraceWriter:
        writer = TraceWriter(url, replace(options, **changes))
        writer.start()
        writers.append(writer)
        return writer

    yield start
    for writer in writers:
        writer.stop()


@pytest.fixture
def valkey(start_valkey: StartValkey) -> Iterator[RunningProcess]:
    """A Valkey of the test's own, to be treated badly."""
    running = start_valkey()
    yield running
    running.end()


def entries(url: str, turn_id: str) -> list[Entry]:
    with Redis.from_url(url, socket_timeout=5.0) as client:
        found: Any = client.xrange(f"ng:trace:{turn_id}")
    return [fields for _, fields in found]


def token_ids(url: str, turn_id: str, choice: int = 0) -> list[int]:
    steps = [unpack_steps(entry) for entry in entries(url, turn_id) if b"end" not in entry]
    return [record.token_id for of, _, records in steps if of == choice for record in records]


def feed(writer: TraceWriter, turn_id: str, numbers: range, *, end: str | None = "stop") -> None:
    trace = writer.open(turn_id)
    for number in numbers:
        trace.add(step(number))
    if end is not None:
        trace.end(end)


def test_every_step_arrives_in_order_in_entries_of_at_most_32(
    valkey_url: str, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    writer = start_writer(valkey_url, options)
    feed(writer, "order", range(100))
    wait_until(lambda: writer.counters().written == 100)
    wait_until(lambda: b"end" in entries(valkey_url, "order")[-1])
    *batches, end = entries(valkey_url, "order")
    unpacked = [unpack_steps(entry) for entry in batches]
    assert [(choice, first, len(records)) for choice, first, records in unpacked] == [
        (0, 0, 32),
        (0, 32, 32),
        (0, 64, 32),
        (0, 96, 4),
    ]
    assert [record for _, _, records in unpacked for record in records] == [step(n) for n in range(100)]
    assert end == {b"end": b"stop", b"choice": b"0", b"n": b"100"}
    assert writer.counters().queued == 0


def test_a_slow_choice_is_written_after_250_ms_without_its_end(
    valkey_url: str, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    writer = start_writer(valkey_url, options)
    trace = writer.open("slow")
    trace.add(step(0))
    started_s = time.monotonic()
    wait_until(lambda: token_ids(valkey_url, "slow") == [0])
    assert time.monotonic() - started_s >= 0.2
    trace.add(step(1))
    wait_until(lambda: token_ids(valkey_url, "slow") == [0, 1])
    trace.end("cancelled")
    wait_until(lambda: entries(valkey_url, "slow")[-1].get(b"end") == b"cancelled")


def test_choices_of_one_turn_share_a_stream_and_end_once_each(
    valkey_url: str, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    writer = start_writer(valkey_url, options)
    first, second = writer.open("two", 0), writer.open("two", 1)
    for number in range(40):
        first.add(step(number))
        second.add(step(1000 + number))
    first.end("length")
    first.end("cancelled")
    second.end("stop")
    wait_until(lambda: sum(b"end" in entry for entry in entries(valkey_url, "two")) == 2)
    assert token_ids(valkey_url, "two", 0) == list(range(40))
    assert token_ids(valkey_url, "two", 1) == list(range(1000, 1040))
    ends = {entry[b"choice"]: entry[b"end"] for entry in entries(valkey_url, "two") if b"end" in entry}
    assert ends == {b"0": b"length", b"1": b"stop"}


def test_a_turn_is_bounded_and_expires(
    valkey_url: str, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    writer = start_writer(valkey_url, options, max_entries=5, ttl_s=60.0)
    feed(writer, "bounded", range(32 * 20))
    wait_until(lambda: b"end" in (entries(valkey_url, "bounded") or [{}])[-1])
    assert len(entries(valkey_url, "bounded")) == 5
    with Redis.from_url(valkey_url) as client:
        assert 50_000 < client.pttl("ng:trace:bounded") <= 60_000


def test_redis_down_at_the_start_spills_and_is_sent_when_it_comes(
    free_port: Callable[[], int],
    start_valkey: StartValkey,
    options: TraceOptions,
    start_writer: StartWriter,
    wait_until: WaitUntil,
) -> None:
    port = free_port()
    writer = start_writer(f"redis://127.0.0.1:{port}/0", options)
    feed(writer, "early", range(70))
    wait_until(lambda: writer.counters().spilled == 70)
    assert writer.counters().written == 0
    valkey = start_valkey(port)
    wait_until(lambda: writer.counters().written == 70)
    assert token_ids(valkey.url, "early") == list(range(70))
    assert entries(valkey.url, "early")[-1][b"end"] == b"stop"
    counters = writer.counters()
    assert (counters.lost, counters.spill_bytes, counters.reconnects) == (0, 0, 1)
    valkey.end()


def test_redis_killed_in_the_middle_loses_nothing_that_comes_after(
    valkey: RunningProcess,
    start_valkey: StartValkey,
    options: TraceOptions,
    start_writer: StartWriter,
    wait_until: WaitUntil,
) -> None:
    writer = start_writer(valkey.url, options)
    feed(writer, "before", range(10))
    wait_until(lambda: writer.counters().written == 10)
    valkey.signal(signal.SIGKILL)
    valkey.process.wait(5)
    for turn in range(5):
        feed(writer, f"while-{turn}", range(50))
    wait_until(lambda: writer.counters().spilled == 250)
    port = int(valkey.url.rsplit(":", 1)[1].split("/")[0])
    back = start_valkey(port)
    wait_until(lambda: writer.counters().written == 260)
    feed(writer, "after", range(10))
    wait_until(lambda: writer.counters().written == 270)
    for turn in range(5):
        assert token_ids(back.url, f"while-{turn}") == list(range(50))
        assert entries(back.url, f"while-{turn}")[-1][b"end"] == b"stop"
    assert token_ids(back.url, "after") == list(range(10))
    assert writer.counters().lost == 0
    back.end()


def test_redis_that_hangs_delays_nobody_and_gets_every_step_once(
    valkey: RunningProcess, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    writer = start_writer(valkey.url, options, timeout_s=3.0)
    feed(writer, "hang", range(32), end=None)
    wait_until(lambda: writer.counters().written == 32)
    valkey.signal(signal.SIGSTOP)
    trace = writer.open("hang-2")
    slowest_s = 0.0
    for number in range(2000):
        before_s = time.perf_counter()
        trace.add(step(number))
        slowest_s = max(slowest_s, time.perf_counter() - before_s)
    trace.end("stop")
    wait_until(lambda: writer.counters().spilled == 2000)
    assert slowest_s < 1.0, "a step waited for redis"
    valkey.signal(signal.SIGCONT)
    wait_until(lambda: writer.counters().written == 2032)
    # The first batch lay in the socket of the stopped server and was sent again: it is there once.
    assert token_ids(valkey.url, "hang-2") == list(range(2000))
    assert sum(b"end" in entry for entry in entries(valkey.url, "hang-2")) == 1
    assert writer.counters().lost == 0


def test_what_was_spilled_survives_a_restart_of_the_writer(
    free_port: Callable[[], int],
    start_valkey: StartValkey,
    options: TraceOptions,
    start_writer: StartWriter,
    wait_until: WaitUntil,
) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    first = start_writer(url, options)
    feed(first, "kept", range(40))
    wait_until(lambda: first.counters().spilled == 40)
    first.stop()
    valkey = start_valkey(port)
    second = start_writer(url, options)
    feed(second, "new", range(5))
    wait_until(lambda: second.counters().written == 45)
    assert token_ids(valkey.url, "kept") == list(range(40))
    assert token_ids(valkey.url, "new") == list(range(5))
    valkey.end()


def test_steps_queued_at_a_stop_are_written(
    valkey_url: str, options: TraceOptions, start_writer: StartWriter
) -> None:
    writer = start_writer(valkey_url, options, batch_s=60.0)
    feed(writer, "stop", range(7), end=None)
    writer.stop()
    assert token_ids(valkey_url, "stop") == list(range(7))


def test_the_spill_file_is_bounded_and_what_does_not_fit_is_counted(
    free_port: Callable[[], int],
    start_valkey: StartValkey,
    options: TraceOptions,
    start_writer: StartWriter,
    wait_until: WaitUntil,
) -> None:
    port = free_port()
    writer = start_writer(f"redis://127.0.0.1:{port}/0", options, spill_max_bytes=20_000)
    feed(writer, "much", range(3200))
    wait_until(lambda: writer.counters().queued == 0)
    counters = writer.counters()
    assert counters.spilled + counters.lost == 3200
    assert counters.lost > 0
    assert 10_000 < sum(file.stat().st_size for file in options.spill_dir.iterdir()) <= 20_000
    valkey = start_valkey(port)
    wait_until(lambda: writer.counters().written == counters.spilled)
    assert token_ids(valkey.url, "much") == list(range(counters.spilled))
    valkey.end()


def test_a_full_queue_counts_what_it_drops_and_the_rest_keeps_its_positions(
    valkey: RunningProcess, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    writer = start_writer(valkey.url, options, max_queued_steps=50, timeout_s=1.0)
    feed(writer, "first", range(1))
    wait_until(lambda: writer.counters().written == 1)
    valkey.signal(signal.SIGSTOP)
    trace = writer.open("gap")
    for number in range(80):
        trace.add(step(number))
    valkey.signal(signal.SIGCONT)
    wait_until(lambda: writer.counters().queued == 0)
    lost = writer.counters().lost
    assert 0 < lost <= 30
    for number in range(80, 90):
        trace.add(step(number))
    trace.end("stop")
    wait_until(lambda: writer.counters().written == 91 - lost)
    for choice_entry in entries(valkey.url, "gap")[:-1]:
        _, first, records = unpack_steps(choice_entry)
        assert [record.token_id for record in records] == list(range(first, first + len(records)))


def test_a_key_of_another_kind_loses_that_turn_alone(
    valkey_url: str, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    with Redis.from_url(valkey_url) as client:
        client.set("ng:trace:taken", "not a stream")
    writer = start_writer(valkey_url, options)
    feed(writer, "taken", range(3))
    feed(writer, "free", range(3))
    wait_until(lambda: writer.counters().written == 3)
    assert token_ids(valkey_url, "free") == [0, 1, 2]
    assert writer.counters().lost == 3


def test_two_workers_whose_clocks_differ_write_to_one_turn(
    valkey_url: str, options: TraceOptions, start_writer: StartWriter, wait_until: WaitUntil
) -> None:
    ahead = TraceWriter(valkey_url, options, clock=lambda: time.time() + 3600.0)
    ahead.start()
    feed(ahead, "skewed", range(3), end="error")
    ahead.stop()
    writer = start_writer(valkey_url, options)
    feed(writer, "skewed", range(5))
    wait_until(lambda: writer.counters().written == 5)
    assert token_ids(valkey_url, "skewed") == [0, 1, 2, 0, 1, 2, 3, 4]


def test_a_spill_file_torn_by_a_crash_keeps_its_whole_entries(tmp_path: Path) -> None:
    path = tmp_path / "trace-0.spill"
    kept = [TraceEntry("ng:trace:a", f"{n}-0", {"n": b"1", "token_id": bytes([n]) * 4}, 1) for n in range(3)]
    spill = SpillFile(path, 10_000)
    assert [spill.append(entry) for entry in kept] == [True, True, True]
    spill.close()
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x40\x00\x00\x00torn")
    reopened = SpillFile(path, 10_000)
    assert path.stat().st_size == whole
    assert [entry for _, entry in reopened.peek(10)] == kept
    (first_size, _), *_ = reopened.peek(1)
    reopened.advance(first_size)
    reopened.close()
    again = SpillFile(path, 10_000)
    assert [entry for _, entry in again.peek(10)] == kept[1:]
    again.close()


def test_two_writers_never_share_a_spill_file(tmp_path: Path) -> None:
    first = SpillFile.claim(tmp_path, 1000)
    second = SpillFile.claim(tmp_path, 1000)
    assert first.append(TraceEntry("k", "1-0", {"x": b"1"}, 1))
    assert second.num_bytes == 0
    first.close()
    heir = SpillFile.claim(tmp_path, 1000)
    assert heir.num_bytes > 0, "the file with left-over entries comes first"
    second.close()
    heir.close()
