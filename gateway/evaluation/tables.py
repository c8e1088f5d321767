"""An evaluation as a person reads it: tables of 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.evaluation.calibration import Calibration
from gateway.evaluation.comparison import Cell, Group
from gateway.evaluation.conflict_recall import ConflictRecall
from gateway.evaluation.cost import PruneCost, Timing
from gateway.evaluation.evaluate import OVERALL, ContextEvaluation
from gateway.evaluation.subject import OURS
from gateway.lab.intervals import Interval

_WITH_INTERVALS = ("recall", "full", "tokens", "answer")
_COLUMNS = {"recall_lenient": "lenient", "off_topic_dropped": "off"}
_EXPLANATION = """\
recall: share of the relevant chunks kept. full: all of them kept. tokens: share of the chunks' tokens \
kept, by the encoder's tokenizer. answer: some kept chunk contains an answer. Behind each the 95 % \
bootstrap interval over requests. lenient: recall with a dropped chunk counted as kept where a near-copy \
of it is kept. off: share of the chunks from other questions that is dropped."""


def print_evaluation(console: Console, evaluation: ContextEvaluation) -> None:
    """Print every set, all of them together, and what it costs."""
    for name, group in evaluation.groups.items():
        console.print(_title(f"{name}: {group.num_requests} requests"))
        console.print(_cells(group.cells))
        console.print()
    console.print(Text(_EXPLANATION))
    console.print()
    if evaluation.overall.comparisons:
        _print_comparisons(console, evaluation.groups)
    if evaluation.calibration is not None:
        console.print(_title("keep-probability against relevance, all judged chunks"))
        console.print(_calibration(evaluation.calibration))
        console.print(
            f"expected calibration error {evaluation.calibration.expected_error:.3f}, "
            f"Brier score {evaluation.calibration.brier:.3f}"
        )
        console.print()
    console.print(_title("cost of one request in ms: median (middle half of the rounds)"))
    console.print(_costs(evaluation.costs.values()))


def print_conflicts(console: Console, conflicts: ConflictRecall) -> None:
    """Print what the conflict detector reports."""
    table = _table("pairs of texts", "number", "reported", "share")
    kinds = {
        "that contradict each other": conflicts.contradicting,
        "and are near-identical otherwise": conflicts.near_identical,
        "false texts, each beside all true ones of its question": conflicts.beside_true,
        "and near-identical to a true one": conflicts.beside_near,
        "true texts of one question": conflicts.among_true,
        "that do not contradict each other": conflicts.agreeing,
        "of relevant chunks of one request": conflicts.relevant,
    }
    for kind, found in kinds.items():
        if found.share is not None:
            table.add_row(kind, str(found.num_pairs), str(found.num_reported), _with_bounds(found.share))
    console.print()
    console.print(_title("conflicts reported"))
    console.print(table)


def _print_comparisons(console: Console, groups: Mapping[str, Group]) -> None:
    console.print(_title("ours against top-n by similarity"))
    console.print(_against_top_n(groups))
    console.print(
        Text("n for our recall is chosen with the labels. At equal tokens n lies between whole numbers.")
    )
    console.print()
    console.print(_title("recall, ours - theirs over all requests (sets: see --json)"))
    console.print(_differences(groups[OVERALL]))
    console.print()


def _cells(cells: Mapping[str, Cell]) -> Table:
    table = _table("method", *_WITH_INTERVALS, *_COLUMNS.values())
    for method, cell in cells.items():
        full = [_with_bounds(cell[measure]) for measure in _WITH_INTERVALS]
        short = [_share(cell[measure]) for measure in _COLUMNS]
        table.add_row(method, *full, *short, style="bold" if method in OURS else None)
    return table


def _against_top_n(groups: Mapping[str, Group]) -> Table:
    table = _table("set", "ours", "recall", "tokens", "n for it", "tokens", "at our tokens", "ours - it", "")
    for name, group in groups.items():
        for ours, found in group.comparisons.items():
            reaching, spending = found.for_our_recall, found.at_equal_tokens
            cell = group.cells[ours]
            table.add_row(
                Text(name),
                ours.removeprefix("ours_"),
                _share(cell["recall"]),
                _share(cell["tokens"]),
                str(reaching.n),
                _decimals(reaching.tokens, 3),
                f"{_decimals(spending.recall, 3)} at {spending.n:.1f}",
                _signed(spending.difference),
                "BELOW" if spending.is_below else "",
            )
    return table


def _differences(group: Group) -> Table:
    table = _table("theirs", *group.comparisons)
    others = next(iter(group.comparisons.values())).recall_difference
    for other in others:
        table.add_row(other, *(_signed(each.recall_difference[other]) for each in group.comparisons.values()))
    return table


def _calibration(calibration: Calibration) -> Table:
    table = _table("probability", "chunks", "predicted", "relevant")
    for each in calibration.bins:
        if each.predicted is not None and each.observed is not None:
            table.add_row(
                f"{each.low:.1f} to {each.high:.1f}",
                str(each.num_chunks),
                _decimals(each.predicted, 3),
                _decimals(each.observed, 3),
            )
    return table


def _costs(costs: Iterable[PruneCost]) -> Table:
    table = _table("chunks", "CPU, nothing cached", "of it beside the encoder", "CPU, cached", "wall, cached")
    for cost in costs:
        table.add_row(
            str(cost.num_chunks),
            _ms(cost.uncached_cpu_ms),
            _ms(cost.beside_encoder_cpu_ms) if cost.beside_encoder_cpu_ms else "not measured",
            _ms(cost.cached_cpu_ms),
            _ms(cost.cached_wall_ms),
        )
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _ms(timing: Timing) -> str:
    return f"{timing.median:.1f} ({timing.low:.1f}–{timing.high:.1f})"


def _with_bounds(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{_share(interval)} {_decimals(interval.low, 2)}–{_decimals(interval.high, 2)}"


def _share(interval: Interval | None) -> str:
    return _decimals(interval.mean, 3) if interval else "-"


def _signed(interval: Interval) -> str:
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _decimals(share: float, number: int) -> str:
    """Write a share in [0, 1] in one width: .953 and 1.00."""
    written = f"{share:.{number}f}"
    return written[1:] if written.startswith("0") else f"{share:.{number - 1}f}"
