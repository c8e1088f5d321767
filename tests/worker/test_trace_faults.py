"""The trace writer where the disk is full, the spill folder cannot be used, or the clock jumps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redis import Redis

from worker.protocol import StepRecord, unpack_steps
from worker.trace import TraceOptions, TraceWriter

if TYPE_CHECKING:
    from tests.conftest import StartValkey, WaitUntil

STEP = StepRecord(
    token_id=7,
    logprob=-0.5,
    entropy_nats=1.25,
    normalised_entropy=0.125,
    gravity=0.875,
    varentropy=2.5,
    p_max=0.75,
    k=3,
    p=1.0,
    temperature=0.5,
    bias_nats=-1.5,
    entropy_after_nats=0.25,
    bucket=2,
    accepted_draft=0,
    engine_step=1000,
    batch_size=4,
)
DISK_BYTES = 20_000
NUM_STEPS = 3_200
FULL_DISK = """
import json, resource, sys
from pathlib import Path
from tests.worker.test_trace_faults import DISK_BYTES, NUM_STEPS, feed
from worker.trace import TraceOptions, TraceWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
writer = TraceWriter(sys.argv[1], TraceOptions(spill_dir=Path(sys.argv[2]), timeout_s=0.3))
writer.start()
feed(writer, "full", NUM_STEPS)
writer.stop()
found = writer.counters()
print(json.dumps({"lost": found.lost, "spilled": found.spilled, "queued": found.queued}))
"""


def feed(writer: TraceWriter, turn_id: str, num_steps: int) -> None:
    trace = writer.open(turn_id)
    for _ in range(num_steps):
        trace.add(STEP)
    trace.end("stop")


def num_steps_of(url: str, turn_id: str) -> int:
    with Redis.from_url(url, socket_timeout=5.0) as client:
        found: Any = client.xrange(f"ng:trace:{turn_id}")
    return sum(len(unpack_steps(fields)[2]) for _, fields in found if b"end" not in fields)


def test_a_full_disk_loses_what_it_cannot_hold_and_counts_it_and_the_rest_is_sent(
    free_port: Callable[[], int], start_valkey: StartValkey, tmp_path: Path, wait_until: WaitUntil
) -> None:
    port = free_port()
    url, folder = f"redis://127.0.0.1:{port}/0", tmp_path / "spill"
    answer = subprocess.run(
        [sys.executable, "-c", FULL_DISK, url, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["spilled"] + found["lost"] == NUM_STEPS
    assert found["spilled"] > 0 < found["lost"]
    assert found["queued"] == 0
    assert (folder / "trace-0.spill").stat().st_size <= DISK_BYTES

    valkey = start_valkey(port)
    later = TraceWriter(url, TraceOptions(spill_dir=folder, timeout_s=0.3))
    later.start()
    wait_until(lambda: later.counters().spill_bytes == 0)
    assert num_steps_of(url, "full") == found["spilled"]
    later.stop()
    valkey.end()


def test_without_a_spill_folder_what_redis_does_not_take_is_lost_and_counted(
    free_port: Callable[[], int], start_valkey: StartValkey, tmp_path: Path, wait_until: WaitUntil
) -> None:
    (tmp_path / "file").write_text("no folder can be made in a file")
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    writer = TraceWriter(url, TraceOptions(spill_dir=tmp_path / "file" / "spill", timeout_s=0.3))
    writer.start()
    feed(writer, "away", 70)
    wait_until(lambda: writer.counters().lost == 70)
    valkey = start_valkey(port)

    def is_back() -> bool:
        feed(writer, "probe", 1)
        return writer.counters().reconnects == 1

    wait_until(is_back)
    feed(writer, "back", 70)
    wait_until(lambda: num_steps_of(url, "back") == 70)
    assert num_steps_of(url, "away") == 0
    writer.stop()
    valkey.end()


def test_a_clock_that_jumps_backwards_and_forwards_loses_and_doubles_no_step(
    valkey_url: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    def jumping() -> Iterator[float]:
        while True:
            yield from (1_800_000_000.0, 1_700_000_000.0, 1_900_000_000.0, 5.0)

    moments = jumping()
    options = TraceOptions(spill_dir=tmp_path / "spill", batch_steps=8)
    writer = TraceWriter(valkey_url, options, clock=lambda: next(moments))
    writer.start()
    feed(writer, "jumps", 200)
    wait_until(lambda: writer.counters().written == 200)
    writer.stop()
    assert num_steps_of(valkey_url, "jumps") == 200
    assert writer.counters().lost == 0
