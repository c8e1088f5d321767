"""/v1/chat/completions over real HTTP, raw and through the OpenAI SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import openai

if TYPE_CHECKING:
    from tests.worker.server.conftest import GreedyReference

ReadEvents = Callable[[str], list[Any]]

HELLO = [{"role": "user", "content": "Say hello to the reader."}]


def chat(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": HELLO, "temperature": 0, "max_tokens": 8, **fields}


def test_a_whole_answer_has_openais_shape_and_the_summary(client: httpx.Client, model_name: str) -> None:
    response = client.post("/v1/chat/completions", json=chat(model_name))
    assert response.status_code == 200
    assert response.headers["x-gravity-worker"] == "native"
    body = response.json()
    [choice] = body["choices"]
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == model_name
    assert body["system_fingerprint"].startswith("fp_")
    assert choice["index"] == 0
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    assert choice["gravity"]["num_steps"] == 8
    assert 0.0 < choice["gravity"]["mean_gravity"] < 1.0
    usage = body["usage"]
    assert usage["completion_tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8


def test_the_prompt_is_rendered_by_the_models_own_template(
    client: httpx.Client, tokenizer: Any, model_name: str, greedy_reference: GreedyReference
) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You answer in one word."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Capital of"}, {"type": "text", "text": "France?"}],
        },
        {"role": "assistant", "content": "Paris"},
        {"role": "user", "content": "And of Italy?"},
    ]
    flat = [
        {**m, "content": "Capital of\nFrance?"} if isinstance(m["content"], list) else m for m in messages
    ]
    prompt_ids = tokenizer.apply_chat_template(flat, add_generation_prompt=True, return_dict=False)
    body = client.post("/v1/chat/completions", json=chat(model_name, messages=messages)).json()
    assert body["usage"]["prompt_tokens"] == len(prompt_ids)
    [expected] = greedy_reference([prompt_ids], 8)
    text = tokenizer.decode(expected, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert body["choices"][0]["message"]["content"] == text


def test_a_stream_opens_with_the_role_and_closes_with_one_finish_and_done(
    client: httpx.Client, model_name: str, read_events: ReadEvents
) -> None:
    whole = client.post("/v1/chat/completions", json=chat(model_name)).json()
    response = client.post("/v1/chat/completions", json=chat(model_name, stream=True))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-gravity-worker"] == "native"
    *chunks, done = read_events(response.text)
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert all("usage" not in chunk for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert (
        "".join(choice["delta"].get("content", "") for choice in choices)
        == (whole["choices"][0]["message"]["content"])
    )
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    assert choices[-1]["delta"] == {}
    summary = whole["choices"][0]["gravity"]
    assert choices[-1]["gravity"] | {"seed": None} == summary | {"seed": None}


def test_usage_comes_last_and_alone_for_who_asks(
    client: httpx.Client, model_name: str, read_events: ReadEvents
) -> None:
    request = chat(model_name, stream=True, stream_options={"include_usage": True})
    *chunks, last, done = read_events(client.post("/v1/chat/completions", json=request).text)
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 8
    assert all(chunk["usage"] is None for chunk in chunks)


def test_the_sdk_streams_the_same_text_that_it_gets_whole(sdk: openai.OpenAI, model_name: str) -> None:
    fields: dict[str, Any] = {"model": model_name, "messages": HELLO, "temperature": 0, "max_tokens": 12}
    whole = sdk.chat.completions.create(**fields)
    with sdk.chat.completions.create(**fields, stream=True) as stream:
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert streamed == whole.choices[0].message.content
    assert streamed


def test_three_choices_of_one_seed_differ_and_can_be_had_again(sdk: openai.OpenAI, model_name: str) -> None:
    fields: dict[str, Any] = {
        "model": model_name,
        "messages": HELLO,
        "temperature": 1.0,
        "max_tokens": 10,
        "seed": 7,
        "n": 3,
        "extra_body": {"ignore_eos": True},
    }
    first = sdk.chat.completions.create(**fields)
    second = sdk.chat.completions.create(**fields)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [choice.message.content for choice in second.choices]
    assert first.usage is not None
    assert first.usage.completion_tokens == 30
    assert first.system_fingerprint == second.system_fingerprint


def test_without_a_seed_one_is_drawn_and_reported(client: httpx.Client, model_name: str) -> None:
    request = chat(model_name, temperature=1.0)
    first = client.post("/v1/chat/completions", json=request).json()["choices"][0]
    again = client.post("/v1/chat/completions", json=request | {"seed": first["gravity"]["seed"]}).json()[
        "choices"
    ][0]
    other = client.post("/v1/chat/completions", json=request).json()["choices"][0]
    assert again["message"]["content"] == first["message"]["content"]
    assert again["gravity"]["seed"] == first["gravity"]["seed"]
    assert other["gravity"]["seed"] != first["gravity"]["seed"]


def test_the_newer_name_of_max_tokens_wins(client: httpx.Client, model_name: str) -> None:
    body = client.post("/v1/chat/completions", json=chat(model_name, max_completion_tokens=3)).json()
    assert body["usage"]["completion_tokens"] == 3


def test_without_max_tokens_the_answer_may_fill_the_context(client: httpx.Client, model_name: str) -> None:
    request = chat(model_name, stop=[" "])
    del request["max_tokens"]
    body = client.post("/v1/chat/completions", json=request).json()
    assert body["choices"][0]["finish_reason"] == "stop"


def test_a_logit_bias_forces_a_token(client: httpx.Client, tokenizer: Any, model_name: str) -> None:
    [token_id] = tokenizer.encode(" gravity", add_special_tokens=False)
    request = chat(model_name, max_tokens=3, logit_bias={str(token_id): 100})
    body = client.post("/v1/chat/completions", json=request).json()
    assert body["choices"][0]["message"]["content"] == " gravity" * 3


def test_fields_of_other_servers_are_accepted(client: httpx.Client, model_name: str) -> None:
    request = chat(
        model_name,
        user="someone",
        response_format={"type": "text"},
        top_k=-1,
        min_p=0.0,
        repetition_penalty=1.0,
        ignore_eos=False,
        metadata={"unknown": "field"},
        stop=None,
        tools=None,
        stream_options=None,
    )
    assert client.post("/v1/chat/completions", json=request).status_code == 200


def test_controls_change_the_sampling_and_show_in_the_summary(client: httpx.Client, model_name: str) -> None:
    controls = '{"adaptive": {"k_min": 1, "k_max": 1}}'
    request = chat(model_name, temperature=1.0, seed=3)
    greedy = client.post("/v1/chat/completions", json=chat(model_name)).json()["choices"][0]
    plain = client.post("/v1/chat/completions", json=request).json()["choices"][0]
    steered = client.post(
        "/v1/chat/completions", json=request | {"vllm_xargs": {"gravity": controls}}
    ).json()["choices"][0]
    assert steered["message"]["content"] == greedy["message"]["content"]
    assert plain["message"]["content"] != greedy["message"]["content"]
    assert steered["gravity"]["mean_k"] == 1.0


def test_the_share_of_kv_blocks_is_in_the_summary_where_they_are_on(
    client: httpx.Client, model_name: str
) -> None:
    text = "Count the towns of the north. " * 20
    controls = '{"kv_blocks": {"mode": "entropy", "threshold": 100, "reference_nats": 40, "min_blocks": 1}}'

    def summary(question: str, **fields: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": question + text}]
        request = chat(model_name, messages=messages, max_tokens=24, ignore_eos=True, **fields)
        answer = client.post("/v1/chat/completions", json=request).json()
        told: dict[str, Any] = answer["choices"][0]["gravity"]
        return told

    plain = summary("One. ")
    assert "mean_kept_share" not in plain
    dropping = summary("Two. ", vllm_xargs={"gravity": controls})  # another beginning: nothing is cached
    assert 0.2 < dropping["mean_kept_share"] < 0.95
    assert dropping["cost_gmac"] < plain["cost_gmac"]
