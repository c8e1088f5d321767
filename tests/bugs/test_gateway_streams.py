"""Public reports about streams, as inputs to the gateway: what a worker sends, what the client gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.servers.gateway import COMPLETIONS, Scripted, StartGateway, events_of
from tests.servers.upstream import (
    Die,
    Pause,
    Script,
    StartUpstream,
    Upstream,
    chunk,
    events,
    whole,
)

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
JSON = "application/json"


@pytest.fixture
def scripted(scripted_at_each_level: Scripted) -> Scripted:
    """Every report is tried with a native worker and with a foreign one."""
    return scripted_at_each_level


def text_of(sent: list[Any]) -> str:
    choices = [choice for each in sent if isinstance(each, dict) for choice in each.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def finishes_of(sent: list[Any]) -> list[tuple[int, str]]:
    choices = [choice for each in sent if isinstance(each, dict) for choice in each.get("choices", ())]
    return [(choice["index"], choice["finish_reason"]) for choice in choices if choice["finish_reason"]]


def assert_ends_in_an_error(sent: list[Any], code: str) -> None:
    assert sent[-1] == "[DONE]"
    assert sent[-2]["error"]["code"] == code
    assert sent[-2]["error"]["type"] == "server_error"
    assert not finishes_of(sent)


@pytest.mark.parametrize("options", [{}, {"include_usage": False}, None])
def test_vllm_36379_empty_stream_options_give_no_usage_chunk(scripted: Scripted, options: Any) -> None:
    scripted.upstream.plays(events(chunk("a"), chunk(finish="stop"), {"choices": [], "usage": USAGE}))
    sent = scripted.stream(stream_options=options)
    assert all("usage" not in each for each in sent[:-1])
    assert all(each["choices"] for each in sent[:-1])
    assert scripted.upstream.received[0][1]["stream_options"] == {"include_usage": True}


def test_litellm_25410_usage_after_the_finish_reaches_the_client_that_asked(scripted: Scripted) -> None:
    scripted.upstream.plays(events(chunk("a"), chunk(finish="stop"), {"choices": [], "usage": USAGE}))
    sent = scripted.stream(stream_options={"include_usage": True})
    assert (sent[-2]["choices"], sent[-2]["usage"]) == ([], USAGE)
    assert sent[-2]["id"] == sent[0]["id"]
    assert sent[-1] == "[DONE]"
    assert finishes_of(sent) == [(0, "stop")]


def test_vllm_mlx_628_an_answer_that_ends_by_eos_finishes_once_with_stop(scripted: Scripted) -> None:
    scripted.upstream.plays(
        events(chunk("a"), chunk("b", finish="eos"), chunk(finish="stop"), chunk("", finish="stop"))
    )
    assert finishes_of(scripted.stream()) == [(0, "stop")]


def test_mlx_vlm_1215_a_small_max_tokens_is_a_length_finish_when_not_streamed(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("a", finish="length")], content_type=JSON))
    assert scripted.post(max_tokens=1).json()["choices"][0]["finish_reason"] == "length"


def test_llama_cpp_20226_each_of_three_choices_gets_its_own_finish(scripted: Scripted) -> None:
    pieces = [chunk(str(index), index=index) for index in range(3)]
    ends = [chunk(index=1, finish="stop"), chunk(index=0, finish="length"), chunk(index=2, finish="stop")]
    scripted.upstream.plays(events(*pieces, *ends))
    sent = scripted.stream(n=3)
    assert sorted(finishes_of(sent)) == [(0, "length"), (1, "stop"), (2, "stop")]


def test_opencode_39968_an_end_without_done_and_finish_is_an_error(scripted: Scripted) -> None:
    scripted.upstream.plays(events(chunk("half an ans"), done=False))
    sent = scripted.stream()
    assert text_of(sent) == "half an ans"
    assert_ends_in_an_error(sent, "upstream_error")


def test_opencode_39968_of_several_choices_every_one_must_have_finished(scripted: Scripted) -> None:
    scripted.upstream.plays(events(chunk("a"), chunk("b", index=1), chunk(finish="stop"), done=False))
    sent = scripted.stream(n=2)
    assert sent[-2]["error"]["code"] == "upstream_error"


def test_any_llm_847_an_upstream_that_dies_mid_stream_ends_in_an_error(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([events(chunk("some"), done=False), Pause(0.05), Die()]))
    sent = scripted.stream()
    assert text_of(sent) == "some"
    assert_ends_in_an_error(sent, "upstream_error")


@pytest.mark.parametrize(
    "error", [{"message": "CUDA error at 0x7f", "type": "server_error"}, "CUDA error at 0x7f"]
)
def test_any_llm_847_an_error_inside_a_stream_is_an_error_event(scripted: Scripted, error: object) -> None:
    scripted.upstream.plays(events(chunk("some"), {"error": error}))
    sent = scripted.stream()
    assert text_of(sent) == "some"
    assert_ends_in_an_error(sent, "upstream_error")
    assert "CUDA" not in str(sent)


def test_any_llm_847_an_error_as_the_first_event_is_a_status(scripted: Scripted) -> None:
    scripted.upstream.plays(events({"error": {"message": "boom", "type": "server_error"}}))
    response = scripted.post(stream=True)
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_error"


def test_any_llm_847_an_upstream_that_dies_in_a_whole_answer_is_502(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("some")[:40], Die()], content_type=JSON))
    assert scripted.post().status_code == 502


@pytest.mark.parametrize(
    "text", ["👩‍🚀 grüße 你好", "line\u2028separator\u2029and\u0085next", "\r\n\ttab \x00 nul"]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", COMPLETIONS])
def test_utopia_764_bytes_that_arrive_one_at_a_time_are_the_same_bytes_out(
    scripted: Scripted, text: str, path: str
) -> None:
    """mlc-llm#1142: a read that ends inside an emoji. httpx-sse#34: U+2028 and U+0085 are no line ends."""
    piece = chunk(text)
    end = chunk(finish="stop")
    if path == COMPLETIONS:
        piece["choices"] = [{"index": 0, "text": text, "finish_reason": None}]
        end["choices"] = [{"index": 0, "text": "", "finish_reason": "stop"}]
    content = events(piece, end)
    scripted.upstream.plays(content)
    at_once = scripted.client.post(path, json=_body(path)).content
    scripted.upstream.plays(Script([content[i : i + 1] for i in range(len(content))]))
    one_by_one = scripted.client.post(path, json=_body(path)).content
    turn_ids = [line.split(b'"turn_id":"')[1][:37] for line in (at_once, one_by_one)]
    assert one_by_one.replace(turn_ids[1], turn_ids[0]) == at_once
    assert _joined(events_of(one_by_one), path) == text


def _body(path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"model": "fake-model", "stream": True}
    return plain | (
        {"prompt": "a"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "a"}]}
    )


def _joined(sent: list[Any], path: str) -> str:
    if path != COMPLETIONS:
        return text_of(sent)
    return "".join(choice["text"] for each in sent[:-1] for choice in each["choices"])


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_httpx_sse_34_a_line_separator_inside_a_string_splits_no_event(
    scripted: Scripted, separator: str
) -> None:
    content = events(chunk(f"a{separator}b"), chunk(separator), chunk(finish="stop"))
    assert content.count(separator.encode()) == 2  # as it is, and not as an escape
    scripted.upstream.plays(content)
    sent = scripted.stream()
    assert [event["choices"][0]["delta"].get("content") for event in sent[:2]] == [
        f"a{separator}b",
        separator,
    ]
    assert len(sent) == 4


def test_aibrix_2653_one_event_over_two_reads_is_one_event(scripted: Scripted) -> None:
    content = events(chunk("first"), chunk("second"), chunk(finish="stop"))
    middle = content.index(b"second")
    scripted.upstream.plays(Script([content[:middle], Pause(0.05), content[middle:]]))
    assert text_of(scripted.stream()) == "firstsecond"


def test_aibrix_2653_several_events_in_one_read_are_several_events(scripted: Scripted) -> None:
    scripted.upstream.plays(events(*[chunk(str(number)) for number in range(50)], chunk(finish="stop")))
    sent = scripted.stream()
    assert len(sent) == 52
    assert text_of(sent) == "".join(map(str, range(50)))


@pytest.mark.parametrize("is_streaming", [True, False])
def test_preloop_121_a_429_before_the_first_event_is_a_429(scripted: Scripted, is_streaming: bool) -> None:
    busy = b'{"error": {"message": "queue is full", "type": "rate_limit_error", "code": "queue_full"}}'
    scripted.upstream.plays(Script([busy], status=429, content_type=JSON, headers={"Retry-After": "7"}))
    response = scripted.post(stream=is_streaming)
    assert response.status_code == 429
    assert response.json()["error"]["type"] == "rate_limit_error"
    assert response.json()["error"]["code"] == "queue_full"
    assert response.headers["retry-after"] == "7"


def test_preloop_121_a_429_as_the_first_event_is_a_429(scripted: Scripted) -> None:
    scripted.upstream.plays(events({"error": {"message": "busy", "code": 429}}))
    assert scripted.post(stream=True).status_code == 429


def test_nuguard_455_after_some_text_nothing_is_sent_twice(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    dying, healthy = start_upstream(), start_upstream()
    dying.plays(Script([events(chunk("once upon"), done=False), Pause(0.05), Die()]))
    healthy.plays(events(chunk("once upon a time"), chunk(finish="stop")))
    gateway = start_gateway(dying.url, healthy.url)
    contents = [_post(gateway.url) for _ in range(2)]
    assert len(dying.received) == len(healthy.received) == 1
    broken = next(content for content in contents if b'"error"' in content)
    assert broken.count(b"once upon") == 1
    assert broken.endswith(b"data: [DONE]\n\n")


def _post(url: str) -> bytes:
    body = {"model": "fake-model", "stream": True, "messages": [{"role": "user", "content": "a"}]}
    return httpx.post(url + "/v1/chat/completions", json=body).content


def test_vllm_3574_the_stop_string_goes_to_the_worker_as_it_came(scripted: Scripted) -> None:
    """The worker cuts at a stop string; the gateway neither holds back nor adds."""
    scripted.upstream.plays(events(chunk("abc"), chunk(finish="stop")))
    assert text_of(scripted.stream(stop=["DEFGHIJ"])) == "abc"
    assert scripted.upstream.received[0][1]["stop"] == ["DEFGHIJ"]


def test_a_stream_that_falls_silent_ends_in_an_error(
    upstream: Upstream, start_gateway: StartGateway, wait_until: Callable[..., Any]
) -> None:
    upstream.plays(Script([events(chunk("some"), chunk("more"), done=False), Pause(30.0)]))
    gateway = start_gateway(upstream.url, idle_timeout_s=0.2)
    content = _post(gateway.url)
    assert b'"upstream_timeout"' in content
    assert content.endswith(b"data: [DONE]\n\n")
    assert wait_until(lambda: upstream.num_left == 1, timeout_s=1.0)
