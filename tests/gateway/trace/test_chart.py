"""Charts drawn with text."""

from __future__ import annotations

import pytest

from gateway.trace.chart import Panel, draw_panel


def test_each_value_is_as_high_as_its_share_of_the_axis() -> None:
    panel = Panel("x", [0.0, 0.25, 0.5, 1.0], 0.0, 1.0)
    lines = draw_panel(panel, width=13, height=1)  # 4 columns beside the axis
    assert lines[0] == "x"
    assert lines[1] == "    1.0 │▁▂▄█"


def test_a_column_is_stacked_from_full_rows_below() -> None:
    lines = draw_panel(Panel("x", [4.0, 8.0], 0.0, 8.0, "{:.0f}"), width=11, height=2)
    assert lines == ["x", "      8 │ █", "      0 │██", "   step └01"]


def test_few_steps_are_drawn_wider_and_many_as_means() -> None:
    wide = draw_panel(Panel("x", [1.0, 0.0], 0.0, 1.0), width=80, height=1)
    assert wide[1].endswith("│████▁▁▁▁")
    means = draw_panel(Panel("x", [0.0, 1.0] * 50, 0.0, 1.0), width=59, height=1)  # 50 columns of 2
    assert means[1].endswith("│" + "▄" * 50)


@pytest.mark.parametrize("num_steps", [1, 2, 70, 71, 72, 500])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_asked(num_steps: int, width: int) -> None:
    panel = Panel("x", [index % 7 for index in range(num_steps)], 0.0, 6.0)
    assert all(len(line) <= width for line in draw_panel(panel, width=width))


def test_values_outside_the_axis_are_drawn_at_its_ends() -> None:
    assert draw_panel(Panel("x", [-5.0, 5.0], 0.0, 1.0), width=11, height=1)[1].endswith("│▁█")
