from __future__ import annotations

import hashlib

import pytest

from gateway.store.versions import canonical_json, content_sha


def test_the_order_of_fields_makes_no_difference() -> None:
    assert (
        canonical_json({"b": 1, "a": {"d": [1, 2], "c": "é"}}) == '{"a":{"c":"é","d":[1,2]},"b":1}'.encode()
    )
    assert content_sha({"b": 1, "a": 2}) == content_sha({"a": 2, "b": 1})
    assert content_sha({"a": [1, 2]}) != content_sha({"a": [2, 1]})


def test_the_sha_is_that_of_the_canonical_text() -> None:
    assert content_sha({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


def test_what_json_cannot_hold_has_no_name() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))
