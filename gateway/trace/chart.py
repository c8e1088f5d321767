"""Charts of one value per token, drawn with text: no colour, any width, no terminal needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

EIGHTHS = " ▁▂▃▄▅▆▇█"
LABEL_WIDTH = 7


@dataclass(frozen=True, slots=True)
class Panel:
    """One value per step, and the range of its axis."""

    title: str
    values: Sequence[float]
    low: float
    high: float
    number_format: str = "{:.1f}"


def draw_panel(panel: Panel, *, width: int, height: int = 4) -> list[str]:
    """Return the lines: a title, ``height`` rows of columns with the axis' ends, and the steps below.

    Each step is one column (or several); where there are more steps than columns, a column is a mean.
    """
    columns = _columns(panel.values, width - LABEL_WIDTH - 2)
    levels = [_level(value, panel, height) for value in columns]
    lines = [panel.title]
    for row in range(height, 0, -1):
        label = {1: panel.low, height: panel.high}.get(row)
        text = "" if label is None else panel.number_format.format(label)
        cells = "".join(EIGHTHS[min(8, max(0, level - 8 * (row - 1)))] for level in levels)
        lines.append(f"{text:>{LABEL_WIDTH}} │{cells}".rstrip())
    last = len(panel.values) - 1
    ruler = f"0{last:>{max(len(columns) - 1, 1)}}" if last > 0 else "0"
    lines.append(f"{'step':>{LABEL_WIDTH}} └{ruler}")
    return lines


def _columns(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        repeat = max(1, min(4, width // max(len(values), 1)))
        return [value for value in values for _ in range(repeat)]
    per_column = math.ceil(len(values) / width)
    groups = (values[start : start + per_column] for start in range(0, len(values), per_column))
    return [sum(group) / len(group) for group in groups]


def _level(value: float, panel: Panel, height: int) -> int:
    """Eighths of a row from the bottom; a value inside the range always shows at least one."""
    share = (value - panel.low) / (panel.high - panel.low)
    return max(1, round(min(1.0, max(0.0, share)) * height * 8))
