"""``gravity demo``: one question through the whole product, shown step by step."""
