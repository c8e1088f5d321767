"""llama.cpp's own server, as the wheel xllamacpp carries it. Runs by its path, in that wheel's environment.

``python llama_cpp.py GGUF PORT THREADS SLOTS CONTEXT``, with ``CONTEXT`` positions for each of the slots.
"""

from __future__ import annotations

import json
import signal
import sys

import xllamacpp


def main() -> None:
    path, port, num_threads, num_slots, context = sys.argv[1], *map(int, sys.argv[2:6])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.model_alias = {"bench"}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_parallel = num_slots
    parameters.n_ctx = num_slots * context
    parameters.cpuparams.n_threads = num_threads
    parameters.cpuparams_batch.n_threads = num_threads
    stopping = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)  # before there are its threads, which inherit it
    server = xllamacpp.Server(parameters)
    print(json.dumps({"event": "ready", "url": server.listening_address}), flush=True)
    signal.sigwait(stopping)


if __name__ == "__main__":
    main()
