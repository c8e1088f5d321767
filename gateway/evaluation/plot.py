"""The Pareto plot: recall against tokens, one panel a set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.errors import CommandError
from gateway.evaluation.comparison import Group
from gateway.evaluation.evaluate import ContextEvaluation
from gateway.evaluation.placing import Box, Point, merge_points, place_names
from gateway.evaluation.subject import OURS

_PANEL_INCHES = (5.4, 4.3)
_DPI = 130
_SAME_POINT_PIXELS = 5.0
_OURS, _CURVE, _OTHERS, _INK, _GRID = "#c2410c", "#9ca3af", "#374151", "#111827", "#e5e7eb"
_MARKERS = {"top": "o", "similarity": "s", "mmr": "D", "embeddings": "^", "all": "X"}


def check_plot(file: Path) -> None:
    """Raise CommandError where no plot could be written to ``file`` once the figures are there."""
    if file.suffix.lower() != ".png":
        raise CommandError(f"{file}: a plot is written as .png")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise CommandError(
            f"{error.name or error} is missing: pip install 'narrative-gravity[evaluation]'"
        ) from error


def plot_context(evaluation: ContextEvaluation, file: Path) -> None:
    """Write a panel for every set, and for all of them together where there are several. Raises OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = dict(evaluation.sets)
    if len(panels) > 1:
        panels["all sets"] = evaluation.overall
    num_columns = min(3, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    width, height = _PANEL_INCHES
    figure = Figure((width * num_columns, height * num_rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("Relevant chunks kept, for the tokens spent", color=_INK, fontsize=15, fontweight="bold")
    grid = figure.subplots(num_rows, num_columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, group) in zip(grid.flat, panels.items(), strict=False):
        _draw_panel(axes, name, group)
    figure.canvas.draw()
    for axes, group in zip(grid.flat, panels.values(), strict=False):
        _write_names(axes, group)
    figure.savefig(file, dpi=_DPI)


def _draw_panel(axes: Any, name: str, group: Group) -> None:
    title = f"{name}  (n = {group.num_requests})"
    axes.set_title(title, loc="left", color=_INK, fontsize=12, parse_math=False)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("tokens kept", color=_INK)
    axes.set_ylabel("recall", color=_INK)
    if group.curves is not None:
        means = group.curves.tokens.mean(axis=0), group.curves.recall.mean(axis=0)
        axes.plot(*means, color=_CURVE, linewidth=1.2, linestyle="--", zorder=1, label="top-n at every n")
        axes.legend(loc="lower right", frameon=False, fontsize=8, labelcolor=_OTHERS)
    _draw_points(axes, _points(group))


def _draw_points(axes: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Mark what others reach, and connect what ours does."""
    for method, point in points.items():
        if method not in OURS:
            marker = _MARKERS[method.partition("_")[0]]
            axes.plot(*point, marker, color=_OTHERS, markersize=7, markeredgecolor="white", zorder=2)
    ours = [points[method] for method in OURS if method in points]
    line = {"color": _OURS, "linewidth": 2.2, "markersize": 8.5, "markeredgecolor": "white"}
    axes.plot([tokens for tokens, _ in ours], [recall for _, recall in ours], "o-", zorder=3, **line)
    lowest = min((recall for _, recall in points.values()), default=0.0)
    axes.set_xlim(0.0, 1.04)
    axes.set_ylim(max(-0.05, lowest - 0.08), 1.06)


def _points(group: Group) -> dict[str, tuple[float, float]]:
    """Return (tokens, recall) of each method that has both."""
    found = {}
    for method, cell in group.cells.items():
        tokens, recall = cell["tokens"], cell["recall"]
        if tokens is not None and recall is not None:
            found[method] = (tokens.mean, recall.mean)
    return found


def _write_names(axes: Any, group: Group) -> None:
    """Write each method's name near its point, once the axes have their final size."""
    named = [(method, tuple(axes.transData.transform(point))) for method, point in _points(group).items()]
    merged = [
        *merge_points([each for each in named if each[0] in OURS], _SAME_POINT_PIXELS),
        *merge_points([each for each in named if each[0] not in OURS], _SAME_POINT_PIXELS),
    ]
    texts = [_text(axes, names) for names, _ in merged]
    extents = [text.get_window_extent() for text in texts]
    panel = axes.get_window_extent()
    boxes = place_names(
        [point for _, point in merged],
        [(extent.width, extent.height) for extent in extents],
        Box(panel.x0, panel.y0, panel.x1, panel.y1),
    )
    to_data = axes.transData.inverted()
    for text, box, (_, point) in zip(texts, boxes, merged, strict=True):
        text.set_position(to_data.transform(box.centre))
        axes.plot(*_leader(to_data, box, point), color=_CURVE, linewidth=0.6, zorder=1.5)


def _text(axes: Any, names: list[str]) -> Any:
    from matplotlib.patheffects import withStroke

    is_ours = any(name in OURS for name in names)
    return axes.text(
        0.0,
        0.0,
        "\n".join(names),
        color=_OURS if is_ours else _OTHERS,
        fontweight="bold" if is_ours else "normal",
        fontsize=8,
        ha="center",
        va="center",
        zorder=4,
        linespacing=1.4,
        path_effects=[withStroke(linewidth=3.0, foreground="white")],
    )


def _leader(to_data: Any, box: Box, point: Point) -> Any:
    """Return xs and ys of the line from ``point`` to the nearest edge of its name."""
    edge = min(max(point[0], box.left), box.right), min(max(point[1], box.bottom), box.top)
    return to_data.transform([point, edge]).T
