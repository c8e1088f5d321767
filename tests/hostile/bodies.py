"""Bodies that nobody means: junk of every kind in known fields, and JSON that is none."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Fields: TypeAlias = dict[str, Any]
"""A good body, the fields that have to be there first."""

FUZZ = settings(
    derandomize=True,  # the same examples every time
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)

TEXT = st.text(max_size=12)
NUMBERS = st.sampled_from(
    (
        0,
        -1,
        1,
        2,
        20,
        21,
        129,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
        -(2**63) - 1,
        10**400,
        0.0,
        -0.0,
        5e-324,
        1e308,
    )
)
SCALARS: st.SearchStrategy[Any] = st.none() | st.booleans() | NUMBERS | TEXT
JUNK: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
) | st.sampled_from(([0] * 3_000, [""] * 3_000, {str(n): n for n in range(500)}, "x" * 5_000, [[]], {}))

FIELDS: dict[str, Fields] = {
    "/v1/chat/completions": {
        "model": "fake-model",
        "messages": [{"role": "user", "content": "hello"}],
        "documents": ["a", {"text": "b", "title": "t", "embedding": [0.5]}, {"id": 7, "data": {"text": "c"}}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "max_tokens": 3,
        "max_completion_tokens": 3,
        "temperature": 0.5,
        "top_p": 0.5,
        "presence_penalty": 1.0,
        "frequency_penalty": 1.0,
        "stop": ["a", "b"],
        "seed": 7,
        "logit_bias": {"5": 1.0},
        "logprobs": True,
        "top_logprobs": 3,
        "user": "u",
        "task": "rag_qa",
        "gravity": {"gravity_strength": 1.0, "core_semantics": ["a"], "adaptive": {"k_max": 4}},
        "tools": [],
        "response_format": {"type": "text"},
    },
    "/v1/completions": {
        "model": "fake-model",
        "prompt": ["hello"],
        "documents": [{"text": "b"}],
        "logprobs": 3,
        "max_tokens": 3,
        "stream": True,
        "gravity": {"temperature": {"t_min": 0.1}},
    },
    "/v1/prune": {
        "documents": ["a", {"text": "b", "score": 0.5}],
        "query": "what is b?",
        "messages": [{"role": "user", "content": "hello"}],
        "model": "fake-model",
        "task": "rag_qa",
        "keep": "balanced",
        "token_budget": 10,
        "order": "ends",
    },
    "/v1/rerank": {
        "documents": ["a", {"text": "b"}],
        "query": "what is b?",
        "model": "fake-model",
        "top_n": 1,
        "return_documents": True,
        "max_tokens_per_doc": 10,
    },
    "/v1/feedback": {"turn_id": "turn-none", "name": "good", "value": 1.0},
    "/admin/config/validate": {
        "documents": [{"task_type": "made_up", "gravity_strength": 1.0}, "task_type: another\n"],
        "removed": ["a"],
        "share": 0.1,
        "is_whole": False,
    },
    "/admin/config/publish": {
        "documents": ["task_type: [\n", {"task_type": "x" * 90}],
        "why": "w",
        "who": "me",
        "is_forced": True,
        "is_dry_run": True,
        "expected_sha": "0" * 64,
    },
    "/admin/config/rollback": {"reference": "1", "why": "w", "who": "me", "is_dry_run": True},
    "/admin/config/import": {"exported": {"namespace": "n", "versions": [], "history": []}, "why": "w"},
}


def bodies(path: str) -> st.SearchStrategy[bytes]:
    """Bodies for a path of the gateway."""
    return bodies_of(FIELDS[path])


@st.composite
def bodies_of(draw: st.DrawFn, usual: Fields, always: tuple[str, ...] = ()) -> bytes:
    """A body with junk in some fields, some left out, some made up; at times no JSON at all.

    ``always`` are fields that may be junk but are never left out.
    """
    body: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(list(usual)), unique=True)):
        body[name] = usual[name] if draw(st.integers(0, 2)) else draw(_near(usual[name]))
    # Most bodies get past the fields that have to be there: what lies behind them is looked at too.
    for name in (*always, *list(usual)[:2]):
        if name in always or draw(st.integers(0, 3)):
            body.setdefault(name, usual[name])
    if draw(st.integers(0, 4)) == 0:
        body |= draw(st.dictionaries(TEXT, JUNK, max_size=2))
    sent: Any = [body, body] if draw(st.integers(0, 9)) == 0 else body
    return draw(_spoiled(json.dumps(sent).encode()))


def _near(usual: Any) -> st.SearchStrategy[Any]:
    """Junk instead of a value, or somewhere inside of it."""
    if isinstance(usual, dict) and usual:
        return JUNK | st.dictionaries(st.sampled_from(list(usual)), JUNK, max_size=3).map(
            lambda new: usual | new
        )
    if isinstance(usual, list) and usual:
        return JUNK | _near(usual[-1]).map(lambda new: [*usual[:-1], new]) | st.lists(JUNK, max_size=3)
    return JUNK


def _spoiled(raw: bytes) -> st.SearchStrategy[bytes]:
    half = len(raw) // 2
    broken = (
        raw[:half],
        raw + raw,
        raw[:half] + b"\xff\xfe" + raw[half:],
        b"\xef\xbb\xbf" + raw,
        raw.decode().encode("utf-16"),
        raw.replace(b'"hello"', b'"\\ud800"'),
        raw.replace(b"0.5", b"NaN").replace(b"1.0", b"Infinity").replace(b"7", b"1e999"),
        raw.replace(b"{", b'{"model": 1, "model": "fake-model", ', 1),
        raw.replace(b"{", b'{"x": ' + b"[" * 5_000 + b"]" * 5_000 + b", ", 1),
        raw.replace(b"{", b'{"x": ' + b"9" * 5_000 + b", ", 1),
        b"[" * 100_000,
        b"",
        b"null",
        b"\x00",
    )
    return st.integers(0, 3).flatmap(lambda n: st.just(raw) if n else st.sampled_from(broken))
