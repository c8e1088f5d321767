"""The path of a request, top to bottom. Stage 1, receive, is gateway/api: it makes the Turn.

  admit     whether it is refused while there is too little    shedding.py
            until when its answer must have begun              deadline.py
2 assign    which task and lane                            assign.py
            that its unit has come under the lane          expose.py
3 prune     the documents that stay                        prune.py
4 shape     controls, prompt, defaults                     shape.py
5 bucket    the s that is expected                         bucket.py
6 dispatch  a worker that begins to answer                 dispatch.py
7 relay     its answer, to the client                      relay.py
8 record    the finished turn, whichever way it ended      record.py
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.errors import InternalError, RequestError
from gateway.flow.assign import assign
from gateway.flow.bucket import bucket
from gateway.flow.deadline import Deadline
from gateway.flow.deps import Deps
from gateway.flow.dispatch import dispatch
from gateway.flow.expose import expose
from gateway.flow.facts import facts_of
from gateway.flow.prune import prune
from gateway.flow.record import record
from gateway.flow.relay import Emit, relay
from gateway.flow.shape import shape
from gateway.flow.shedding import admit
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn


class Serve(Protocol):
    """What serves a turn."""

    async def __call__(self, turn: Turn, deps: Deps, emit: Emit) -> Turn: ...


async def serve(turn: Turn, deps: Deps, emit: Emit) -> Turn:
    """Serve one turn: ``emit`` gets the answer, piece by piece. Returns the turn as it was recorded.

    Raises RequestError for what the client must be told; before the first emit it is a status code. Being
    cancelled (the client has gone) stops the work in whatever stage it is.
    """
    tally = Tally(deps.monotonic)
    tally.span = deps.tracing.turn(turn.parent, turn.received_at)
    try:
        async with deps.drain.turn(), Deadline(turn, deps, tally) as deadline:
            turn = await admit(turn, deps)
            turn = await assign(turn, deps)
            turn = await expose(turn, deps)
            with tally.span.part("prune"):
                turn = await prune(turn, deps)
            turn = await shape(turn, deps)
            turn = await bucket(turn, deps)
            deadline.prepared()
            async with dispatch(turn, deps, tally) as (turn, reply):
                deadline.met()
                with tally.span.part("relay"):
                    await relay(turn, reply, tally, emit)
    except RequestError as error:
        tally.fail(error)
        raise
    except asyncio.CancelledError:
        tally.cancel()
        raise
    except BaseException:
        tally.fail(InternalError())
        raise
    finally:
        turn = await record(
            turn.grown(worker=tally.worker, num_attempts=tally.num_attempts, outcome=tally.outcome()),
            deps,
        )
        if deps.tracing.is_on:
            tally.span.end(facts_of(turn, has_prompt_text=deps.tracing.has_prompt_text))
    return turn
