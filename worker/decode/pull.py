"""Gravity, compiled once for a request: which tokens are pulled, by how much, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from worker.decode.errors import ControlError
from worker.decode.lexicon import Lexicon, Spelling, WordIds
from worker.decode.row import Ids
from worker.decode.theme import EmbeddingSpace, Vector
from worker.engine.request import GenerationRequest
from worker.protocol import GravityControls, ThemeVector
from worker.thermo.entropy import DoubleRow, FloatRow
from worker.thermo.gravity import Stage, half_life_decay, linear_decay


@dataclass(frozen=True, slots=True, eq=False)
class Pull:
    """What of the pull does not change from step to step.

    ``ids`` ascend; ``unit_nats`` is each one's bias at strength 1. ``following`` is added to it right after
    the pieces of its key. ``masked`` is forbidden, and ``masked_after`` right after the pieces of its key.
    """

    controls: GravityControls
    stages: tuple[Stage, ...]
    ids: Ids
    unit_nats: DoubleRow
    following: Mapping[Spelling, Mapping[int, float]]
    masked: Ids
    masked_after: Mapping[Spelling, Ids]
    prefix_lengths: tuple[int, ...]
    theme: Vector | None

    @property
    def largest_nats(self) -> float:
        """The largest bias at full strength, whatever its sign."""
        return self.controls.strength * float(np.abs(self.unit_nats).max(initial=0.0))

    def decay(self, step: int) -> float:
        """Return the share of the strength that is left at a step, in [0, 1]."""
        after = self.controls.decay_after_steps
        if after is None or self.controls.decay == "none":
            return 1.0
        if self.controls.decay == "linear":
            return linear_decay(step, after)
        return half_life_decay(step, after, self.controls.half_life_steps or max(1, after))


def compile_pull(request: GenerationRequest, lexicon: Lexicon, space: EmbeddingSpace | None) -> Pull | None:
    """Compile the request's gravity; None where it has none.

    Raises ControlError where it asks for a theme's vector and the model gives no output embedding.
    """
    controls = request.controls.gravity
    if controls is None or controls.strength == 0.0:
        return None
    keywords, penalized = lexicon.look_up(controls.keywords), lexicon.look_up(controls.penalize)
    theme = _theme(request, controls, lexicon, space)
    unit: dict[int, float] = {}
    if theme is not None and space is not None and controls.vector is not None:
        unit = _vector_nats(space.similarity(theme), controls.vector)
    for id_ in keywords.whole | keywords.first:
        unit[id_] = unit.get(id_, 0.0) + controls.boost_weight
    is_mask = controls.mode == "mask"
    if not is_mask:
        # A token that is a keyword by itself does not suffer for being the beginning of another word.
        for id_ in penalized.whole | (penalized.first - keywords.whole):
            unit[id_] = unit.get(id_, 0.0) - controls.penalty_weight
    following = _following(keywords, controls.boost_weight, {})
    if not is_mask:
        following = _following(penalized, -controls.penalty_weight, following)
    masked_after = {key: _ids(ids) for key, ids in penalized.last.items()} if is_mask else {}
    ids = _ids(unit)
    return Pull(
        controls=controls,
        stages=_stages(controls, request.sampling.max_tokens),
        ids=ids,
        unit_nats=np.array([unit[int(id_)] for id_ in ids], np.float64),
        following=following,
        masked=_ids(penalized.whole if is_mask else ()),
        masked_after=masked_after,
        prefix_lengths=tuple(sorted({len(key) for key in (*following, *masked_after)})),
        theme=theme if controls.drift is not None else None,
    )


def _theme(
    request: GenerationRequest, controls: GravityControls, lexicon: Lexicon, space: EmbeddingSpace | None
) -> Vector | None:
    if controls.vector is None and controls.drift is None:
        return None
    if space is None:
        raise ControlError(
            "this model gives no output embedding, so gravity has no vector and no drift", param="vllm_xargs"
        )
    text = controls.vector.text if controls.vector else None
    return space.theme(request.prompt_ids if text is None else lexicon.vocabulary.encode(text))


def _vector_nats(similarity: FloatRow, vector: ThemeVector) -> dict[int, float]:
    near = np.flatnonzero((similarity >= vector.threshold) & (similarity > 0.0))
    return {int(id_): vector.weight * float(similarity[id_]) for id_ in near}


def _following(
    words: WordIds, unit_nats: float, others: Mapping[Spelling, Mapping[int, float]]
) -> dict[Spelling, dict[int, float]]:
    merged = {key: dict(ids) for key, ids in others.items()}
    for key, ids in words.following.items():
        target = merged.setdefault(key, {})
        for id_ in ids:
            target[id_] = target.get(id_, 0.0) + unit_nats
    return merged


def _stages(controls: GravityControls, max_tokens: int) -> tuple[Stage, ...]:
    stages = []
    for stage in controls.stages:
        start = stage.from_step if stage.from_step is not None else (stage.from_share or 0.0) * max_tokens
        stages.append(Stage(math.ceil(start), stage.factor))
    return tuple(sorted(stages, key=lambda stage: stage.start))


def _ids(ids: Iterable[int]) -> Ids:
    return np.array(sorted(ids), np.intp)
