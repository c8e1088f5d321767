"""What an experiment measures of a turn: names, units and directions; docs/experiments.md explains each."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.store.document import Better

FEEDBACK_PREFIX = "feedback:"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number a turn. ``unit`` is what a difference of 1 means."""

    name: str
    unit: str
    better: Better
    meaning: str


METRICS = {
    metric.name: metric
    for metric in (
        Metric("latency_s", "s", "lower", "from a turn's arrival to its end"),
        Metric("time_to_first_token_s", "s", "lower", "from a turn's arrival to its first token (streams)"),
        Metric("prompt_tokens", "tokens", "lower", "tokens that the worker read"),
        Metric("completion_tokens", "tokens", "lower", "tokens that the worker wrote"),
        Metric("error", "share", "lower", "1 where the turn ended with an error"),
        Metric("cancelled", "share", "lower", "1 where the client left before the end"),
        Metric("cut_off", "share", "lower", "1 where the answer ended at its token limit"),
        Metric("rep_4", "share", "lower", "4-grams of the answer that are repetitions"),
        Metric("theme_relevance", "cosine", "higher", "similarity of the answer to the question"),
        Metric("answer_words", "words", "higher", "words of the answer"),
        Metric("mean_entropy_nats", "nats", "lower", "the model's mean entropy before any bias"),
        Metric("entropic_time_nats", "nats", "higher", "tau: the sum of all falls of the entropy"),
    )
}


def metric_of(name: str) -> Metric | None:
    """Return the metric of that name; None where there is none. Feedback has no unit, and more is better."""
    if name.startswith(FEEDBACK_PREFIX):
        return Metric(name, "", "higher", f"what clients report as {name.removeprefix(FEEDBACK_PREFIX)!r}")
    return METRICS.get(name)
