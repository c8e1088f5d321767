"""Questions, and twenty texts of which one says the answer: right is an answer that has its words.

The texts are invented, so that no model knows an answer without reading.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Question:
    """``answer`` is what a right answer contains, whatever the case of its letters."""

    text: str
    answer: str


QUESTIONS: tuple[Question, ...] = (
    Question("What powers the ferry Marrow Lark?", "hydrogen"),
    Question("Who painted the ceiling of the Vell theatre?", "Castell"),
    Question("How many bells hang in the tower of Haugen?", "eleven"),
    Question("What is grown on the terraces of Tarrow?", "saffron"),
    Question("Which animal is shown on the flag of Brackwater?", "heron"),
    Question("What is the bread of Marnholm made from?", "chestnut"),
    Question("Where was the telescope of the Ostrava observatory built?", "Lindqvist"),
    Question("What stopped the railway to Skerrin?", "landslide"),
)
_TEXTS: tuple[tuple[str, str], ...] = (
    (
        "Marrow Lark",
        "The ferry Marrow Lark is powered by hydrogen fuel cells, which feed two electric motors. She is "
        "58 metres long, carries 180 passengers and needs four hours and ten minutes for the night "
        "crossing. Her crew of nine lives on board for a week at a time. A battery covers the manoeuvres "
        "in harbour.",
    ),
    (
        "Theatre of Vell",
        "The ceiling of the Vell theatre was painted by Mina Castell in two winters, lying on a scaffold "
        "of larch. It shows the four winds and a fleet that comes home. The theatre has 412 seats, all of "
        "them with a view of the stage, and is heated by the waste heat of the bakery next door.",
    ),
    (
        "Tower of Haugen",
        "In the tower of Haugen hang eleven bells, the heaviest of which weighs as much as three oxen. "
        "They are rung by hand on the first day of each month. The tower leans a little to the north, "
        "since its foundation was laid on the bed of an old stream that nobody remembered.",
    ),
    (
        "Terraces of Tarrow",
        "On the terraces of Tarrow saffron is grown, as it has been since monks brought the bulbs over "
        "the pass. The harvest takes three weeks in October, begins before sunrise, and employs half of "
        "the valley. The walls of the terraces are dry stone and have to be mended every spring.",
    ),
    (
        "Flag of Brackwater",
        "The flag of Brackwater shows a grey heron on a field of green. It was chosen in a vote that "
        "lasted two days, after the old flag, which nobody could draw from memory, had been lost in a "
        "fire at the town hall. Copies are sewn by the pupils of the school.",
    ),
    (
        "Bread of Marnholm",
        "The bread of Marnholm is made from chestnut flour, water and a little salt, and is baked on "
        "stones. It keeps for a fortnight, which is why sailors took it along. Visitors find it heavy at "
        "first. The mill that grinds the flour stands where two brooks meet.",
    ),
    (
        "Observatory of Ostrava",
        "The telescope of the Ostrava observatory was built in the workshop of Lindqvist and carried up "
        "the hill by forty people, since no cart could make the last bend. Its mirror has been polished "
        "twice. On clear nights the dome is open to everybody who brings a warm coat.",
    ),
    (
        "Railway to Skerrin",
        "The railway to Skerrin was stopped by a landslide that buried the third tunnel, and has never "
        "been opened again. The stations are still there: one is a post office, one a restaurant, and the "
        "last one is lived in by the grandson of its master. Hikers use the line as a path.",
    ),
    (
        "Keeping of bees",
        "A colony is looked through every seven to nine days in spring. A comb with a queen cell is taken "
        "out or the colony is divided, before it swarms. In autumn the entrance is made narrow against "
        "mice, and the hives are weighed to see whether the winter's food is enough.",
    ),
    (
        "Sharpening of chisels",
        "The back of the blade is made flat first, on a coarse stone and then on a fine one. The bevel "
        "follows at an angle of 25 degrees, until a burr can be felt along the whole edge. The burr is "
        "taken off on leather. A chisel that is sharp pares the end of a board of pine.",
    ),
    (
        "Growing of tomatoes",
        "Tomatoes are sown indoors eight weeks before the last frost. The plants are set deep, since "
        "their stems make roots, and are tied to poles. Side shoots are broken out. Water is given to the "
        "soil and not to the leaves, in the morning and seldom, but then much of it.",
    ),
    (
        "Opening moves",
        "White opens with the pawn in front of the king and black answers with the same. The knights come "
        "out before the bishops, the king is brought to safety early, and the queen stays where she is. A "
        "piece that has been moved should not be moved again without need.",
    ),
    (
        "Repair of a puncture",
        "The tyre is lifted off the rim with two levers and the tube is drawn out. A little air shows the "
        "hole, by its hiss or by bubbles in water. The rubber around it is roughened, glue is spread and "
        "left until it is dull, and the patch is pressed on from the middle outwards.",
    ),
    (
        "Dyeing of wool",
        "The wool is washed and laid in a bath of alum for an hour. Onion skins give yellow, madder red, "
        "and woad a blue that appears only in the air. The bath is warmed slowly, is never stirred hard, "
        "and cools with the wool in it. Rinsing goes on until the water stays clear.",
    ),
    (
        "Formation of dew",
        "On clear nights the ground loses its heat to the sky. Air that touches it is cooled below the "
        "temperature at which it can hold its water, and drops form on grass first, since thin blades "
        "cool fastest. Clouds and wind both prevent it, the one by radiating back and the other by "
        "mixing.",
    ),
    (
        "Binding of books",
        "Sheets are folded into sections and pressed overnight. The sections are sewn through the fold on "
        "to tapes, the spine is glued and rounded with a hammer, and the boards are laced on. Paper is "
        "always cut along its grain, or the cover warps when the weather turns.",
    ),
    (
        "Moss on roofs",
        "Moss grows where it is damp and shaded, on stone as well as on wood. On a roof it holds water, "
        "which freezes and lifts the tiles. It can be brushed off in dry weather. Strips of copper below "
        "the ridge keep it away, as rain washes a trace of the metal down.",
    ),
    (
        "Boiling of jam",
        "Fruit and sugar stand overnight in equal weights. The pan is wide, so that the water leaves "
        "quickly. A drop on a cold plate that wrinkles when pushed has been boiled enough. The jars are "
        "filled to the brim while hot and are turned over for five minutes.",
    ),
    (
        "Knots for climbers",
        "The figure of eight is tied twice, the second time following the first. Its ends are as long as "
        "a hand. It is looked at by both partners before anybody leaves the ground. Wet ropes are harder "
        "to untie, and a rope that has held a long fall is put aside.",
    ),
    (
        "Care of cast iron",
        "A pan is wiped while it is warm, with a little salt where something sticks, and never soaked. "
        "Oil is rubbed on thinly and baked in the oven for an hour. The layer that forms keeps rust away "
        "and lets eggs slide. Acid sauces eat it and belong into another pan.",
    ),
)


def documents(seed: tuple[int, ...]) -> list[dict[str, str]]:
    """Return all texts in a drawn order, as a request carries them."""
    order = np.random.default_rng(seed).permutation(len(_TEXTS))
    return [{"title": _TEXTS[place][0], "text": _TEXTS[place][1]} for place in order]


def is_right(question: Question, answer: str) -> bool:
    """Return whether the answer has the words that were asked for."""
    return question.answer.casefold() in answer.casefold()
