"""``gravity train context``: labelled requests in, a selector and its card out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from gateway.context.encoding import BUNDLED_ENCODER, EncoderModel, Space
from gateway.context.selector import Scorer, Selector
from gateway.errors import CommandError
from gateway.lab.labelled import LabelledRequest, read_labelled
from gateway.training.card import Provenance, render_card
from gateway.training.choosing import RECALL, choose_about, choose_price
from gateway.training.fitting import COLUMNS, Judged, Recipe, fit, out_of_fold, out_of_set
from gateway.training.measuring import Measured, encode_texts, measure_all
from gateway.training.variations import variations


@dataclass(frozen=True, slots=True)
class TrainOptions:
    data: tuple[Path, ...]
    out: Path
    recipe: Recipe = Recipe()


def run_train_context(options: TrainOptions) -> int:
    """Train, choose, write ``out`` and ``out`` with the suffix ``.md``. Raises CommandError."""
    _require_extra()
    requests = [request for request in read_labelled(options.data) if request.documents]
    fewest = 2 * options.recipe.num_folds
    if len(requests) < fewest:
        raise CommandError(f"{len(requests)} labelled requests are too few to learn from: {fewest} at least")
    if not options.out.parent.is_dir():
        raise CommandError(f"{options.out.parent} is no folder")
    drawn = list(variations(requests, options.recipe.seed))
    model = EncoderModel(BUNDLED_ENCODER, "fp32", 1)
    examples = measure_all(drawn, encode_texts(model, drawn))
    spaces: tuple[Space, ...] = get_args(Space)
    judged = {space: out_of_fold(examples, space, options.recipe) for space in spaces}
    unseen = out_of_set(examples, "full", options.recipe) if len({each.set for each in examples}) > 1 else []
    scorers = {space: _scorer(examples, judged[space], space, options.recipe) for space in spaces}
    provenance = _provenance(options, requests)
    selector = Selector.of(MappingProxyType(scorers))
    selector.save(options.out)
    card = options.out.with_suffix(".md")
    card.write_text(render_card(selector, provenance, judged, unseen), encoding="utf-8")
    print(f"{options.out}: selector {selector.version}, {options.out.stat().st_size // 1024} KiB; {card}")
    return 0


def _scorer(examples: Sequence[Measured], judged: Sequence[Judged], space: Space, recipe: Recipe) -> Scorer:
    return Scorer(
        signals=COLUMNS[space],
        forest=fit(examples, space, recipe),
        prices=MappingProxyType({name: choose_price(judged, share) for name, share in RECALL.items()}),
        about=choose_about(judged),
    )


def _provenance(options: TrainOptions, requests: Sequence[LabelledRequest]) -> Provenance:
    return Provenance(
        files=[(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in options.data],
        num_requests=Counter(request.set for request in requests),
        encoder=BUNDLED_ENCODER,
        recipe=options.recipe,
        libraries=_libraries(),
    )


def _libraries() -> Mapping[str, str]:
    return {name: version(name) for name in ("scikit-learn", "torch", "narrative-gravity")}


def _require_extra() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise CommandError(
            "training needs scikit-learn: pip install 'narrative-gravity[evaluation]'"
        ) from error
