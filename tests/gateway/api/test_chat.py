"""The chat and completions endpoints when all goes well: shapes, headers, the ``gravity`` object."""

from __future__ import annotations

from typing import Any

import httpx
import orjson

from tests.servers.gateway import COMPLETIONS, Scripted, StartGateway
from tests.servers.upstream import Script, StartUpstream, chunk, events, whole

JSON = "application/json"
SUMMARY = {
    "num_steps": 2,
    "mean_entropy_nats": 1.25,
    "mean_gravity": 0.8,
    "mean_k": 12.0,
    "entropic_time_nats": 0.5,
    "net_drop_nats": 0.25,
    "envelope_nats": 0.3,
    "cost_gmac": 0.25,
    "nats_per_gmac": 2.0,
    "cached_prompt_tokens": 16,
    "seed": 11,
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
DOCUMENTS: list[Any] = [
    {"text": "Tides follow the moon.", "title": "Tides", "source": "almanac", "page": 7},
    "The moon is a satellite.",
    {"id": "orbit", "data": {"text": "It circles in 27 days.", "checked": True}},
]


def test_a_stream_is_framed_and_labelled_as_one(scripted: Scripted) -> None:
    scripted.upstream.plays(events(chunk("he"), chunk("llo"), chunk(finish="stop")))
    response = scripted.post(stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.content.endswith(b"data: [DONE]\n\n")
    assert response.content.count(b"\n\n") == 4


def test_the_first_event_says_what_was_done_and_the_last_what_came_of_it(scripted: Scripted) -> None:
    scripted.upstream.plays(events(chunk("a"), chunk(finish="stop", gravity=SUMMARY)))
    response = scripted.post(stream=True, documents=DOCUMENTS)
    first, last = (orjson.loads(line[6:]) for line in response.content.split(b"\n\n")[:2])
    opening, closing = first["gravity"], last["gravity"]
    assert opening["turn_id"] == closing["turn_id"] == response.headers["x-gravity-turn-id"]
    assert (opening["lane"], opening["task"]) == ("treatment", "default")
    assert opening["config_sha"] == scripted.gateway.deps.config.snapshot.sha
    assert opening["worker"] == scripted.upstream.url
    assert [document["id"] for document in opening["documents"]] == ["doc-0", "doc-1", "orbit"]
    assert opening["tokens_before"] >= opening["tokens_after"] > 0
    assert closing["mean_entropy_nats"] == 1.25
    assert closing["entropic_time_nats"] == 0.5
    assert (closing["nats_per_gmac"], closing["cached_prompt_tokens"]) == (2.0, 16)
    assert closing["seed"] == 11


def test_an_answer_that_is_not_streamed_carries_all_of_it_at_once(scripted: Scripted) -> None:
    answer = orjson.loads(whole("hello"))
    answer["choices"][0]["gravity"] = SUMMARY
    scripted.upstream.plays(Script([orjson.dumps(answer)], content_type=JSON))
    response = scripted.post(documents=DOCUMENTS)
    body = response.json()
    assert body["choices"] == orjson.loads(whole("hello"))["choices"]
    assert body["usage"] == USAGE
    assert body["gravity"]["turn_id"] == response.headers["x-gravity-turn-id"]
    assert body["gravity"]["mean_gravity"] == 0.8
    assert body["system_fingerprint"].startswith("fp_")


def test_metadata_comes_back_untouched_on_what_is_kept(scripted: Scripted) -> None:
    """langchain#19142."""
    scripted.upstream.plays(Script([whole("ok")], content_type=JSON))
    headers = {"X-Gravity-Lane": "control"}
    body = {"model": "fake-model", "messages": [{"role": "user", "content": "a"}], "documents": DOCUMENTS}
    answer = scripted.client.post("/v1/chat/completions", json=body, headers=headers).json()
    told = {document["id"]: document for document in answer["gravity"]["documents"]}
    assert told["doc-0"]["metadata"] == {"source": "almanac", "page": 7}
    assert told["doc-0"]["title"] == "Tides"
    assert told["orbit"]["metadata"] == {"checked": True}


def test_chunks_that_share_an_id_keep_their_own_metadata(scripted: Scripted) -> None:
    """Retrievers send several chunks of one page under the page's id."""
    scripted.upstream.plays(Script([whole("ok")], content_type=JSON))
    documents = [{"id": "page", "text": text, "part": part} for part, text in enumerate(("One.", "Two."))]
    body = {"model": "fake-model", "messages": [{"role": "user", "content": "a"}], "documents": documents}
    answer = scripted.client.post("/v1/chat/completions", json=body, headers={"X-Gravity-Lane": "control"})
    told = answer.json()["gravity"]["documents"]
    assert [document["metadata"] for document in told] == [{"part": 0}, {"part": 1}]


def test_the_worker_is_asked_for_usage_and_gets_none_of_our_fields(scripted: Scripted) -> None:
    scripted.upstream.plays(events(chunk("a"), chunk(finish="stop")))
    scripted.post(stream=True, documents=DOCUMENTS, task="default", gravity={"gravity_strength": 0.5})
    path, sent = scripted.upstream.received[0]
    assert path == "/v1/chat/completions"
    assert sent["stream_options"] == {"include_usage": True}
    assert not {"documents", "task", "gravity"} & sent.keys()


def test_completions_are_served_the_same_way(scripted: Scripted) -> None:
    choice = {"index": 0, "text": "lo", "finish_reason": None, "logprobs": None}
    end = {"index": 0, "text": "", "finish_reason": "length", "logprobs": None}
    identity = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "fake-model"}
    scripted.upstream.plays(
        events({**identity, "choices": [choice]}, {**identity, "choices": [end], "gravity": SUMMARY})
    )
    sent = scripted.stream(COMPLETIONS)
    assert [each["choices"][0]["text"] for each in sent[:-1]] == ["lo", ""]
    assert sent[1]["choices"][0]["finish_reason"] == "length"
    assert sent[0]["object"] == "text_completion"
    assert sent[0]["gravity"]["lane"] == "treatment"
    assert sent[1]["gravity"]["mean_entropy_nats"] == 1.25


def test_a_request_id_is_kept_and_a_bad_one_replaced(scripted: Scripted) -> None:
    assert scripted.client.get("/livez", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    given = scripted.client.get("/livez", headers={"X-Request-Id": "a b"}).headers["x-request-id"]
    assert given.startswith("req-")


def test_an_opaque_worker_gets_no_controls(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    opaque = start_upstream(is_native=False)
    opaque.plays(Script([whole("ok")], content_type=JSON))
    gateway = start_gateway(opaque.url)
    body = {"model": "fake-model", "messages": [{"role": "user", "content": "a"}], "documents": DOCUMENTS}
    headers = {"X-Gravity-Lane": "control"}
    answer = httpx.post(gateway.url + "/v1/chat/completions", json=body, headers=headers).json()
    assert answer["gravity"]["are_tokens_estimated"]
    assert answer["gravity"]["mean_entropy_nats"] is None
    assert "vllm_xargs" not in opaque.received[0][1]
