"""Names in a plot cover neither each other nor points, and stay in the panel."""

from __future__ import annotations

from itertools import combinations

from gateway.evaluation.placing import Box, merge_points, place_names

PANEL = Box(0.0, 0.0, 400.0, 300.0)


def test_crowded_names_do_not_cover_each_other_or_a_point() -> None:
    points = [(200.0, 150.0), (206.0, 152.0), (200.0, 160.0), (212.0, 148.0)]
    boxes = place_names(points, [(60.0, 12.0)] * 4, PANEL)
    assert all(one.overlap(other) == 0.0 for one, other in combinations(boxes, 2))
    assert all(box.overlap(Box(x - 3, y - 3, x + 3, y + 3)) == 0.0 for box in boxes for x, y in points)


def test_a_name_in_the_corner_stays_in_the_panel() -> None:
    (box,) = place_names([(398.0, 298.0)], [(80.0, 12.0)], PANEL)
    assert box.overlap(PANEL) == box.area


def test_a_name_with_room_stands_right_beside_its_point() -> None:
    (box,) = place_names([(100.0, 100.0)], [(50.0, 12.0)], PANEL)
    assert box.centre[1] == 100.0
    assert 100.0 < box.left < 115.0


def test_points_that_cannot_be_told_apart_share_a_name() -> None:
    named = [("a", (0.0, 0.0)), ("b", (50.0, 0.0)), ("c", (1.0, 1.0))]
    assert merge_points(named, 5.0) == [(["a", "c"], (0.0, 0.0)), (["b"], (50.0, 0.0))]
