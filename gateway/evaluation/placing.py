"""Where the names of points go in a plot: near their point, over nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Point: TypeAlias = tuple[float, float]
"""(x, y), or (width, height), in pixels."""

_DISTANCES = (4.0, 12.0, 24.0, 40.0, 60.0)
_DIRECTIONS = 16
_POINT_RADIUS = 5.0
_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Return the area, in square pixels, that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(width, 0.0) * max(height, 0.0)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.top - self.bottom)

    @property
    def centre(self) -> Point:
        return (self.left + self.right) / 2.0, (self.bottom + self.top) / 2.0

    def grown(self, margin: float) -> Box:
        return Box(self.left - margin, self.bottom - margin, self.right + margin, self.top + margin)


def place_names(points: Sequence[Point], sizes: Sequence[Point], panel: Box) -> list[Box]:
    """Return a box of ``sizes`` (width, height) for each point, one after the other, each at its best place.

    A place costs what it covers of earlier names and of points, what lies outside of ``panel``, and its way.
    """
    taken = [Box(x, y, x, y).grown(_POINT_RADIUS) for x, y in points]
    placed: list[Box] = []
    for point, size in zip(points, sizes, strict=True):
        best = min(_candidates(point, size), key=lambda found: _cost(found, [*taken, *placed], panel))
        placed.append(best[1].grown(_MARGIN))
    return [box.grown(-_MARGIN) for box in placed]


def merge_points(named: Sequence[tuple[str, Point]], nearness: float) -> list[tuple[list[str], Point]]:
    """Return the points with the names of all that lie within ``nearness`` pixels of the first of them."""
    merged: list[tuple[list[str], Point]] = []
    for name, point in named:
        for names, other in merged:
            if math.dist(point, other) <= nearness:
                names.append(name)
                break
        else:
            merged.append(([name], point))
    return merged


def _candidates(point: Point, size: Point) -> Iterator[tuple[float, Box]]:
    """Offer places around ``point``, each with its distance, to the right first."""
    (x, y), (width, height) = point, size
    for distance in _DISTANCES:
        for step in range(_DIRECTIONS):
            angle = 2.0 * math.pi * step / _DIRECTIONS
            reach = _POINT_RADIUS + distance
            centre_x = x + math.cos(angle) * (reach + width / 2.0)
            centre_y = y + math.sin(angle) * (reach + height / 2.0)
            left, bottom = centre_x - width / 2.0, centre_y - height / 2.0
            yield distance, Box(left, bottom, left + width, bottom + height)


def _cost(found: tuple[float, Box], taken: Sequence[Box], panel: Box) -> float:
    distance, box = found
    covered = sum(box.overlap(other) for other in taken)
    return 10.0 * (box.area - box.overlap(panel)) + 4.0 * covered + 2.0 * distance
