"""What a retriever might have found for the demo's question: one theme, and much that is off it."""

from __future__ import annotations

from dataclasses import dataclass

QUESTION = "How is the ship on the night crossing to Skerrin powered?"
ANSWER_WORDS = ("hydrogen", "fuel cell")
"""What a right answer contains."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One retrieved text, as it goes into ``documents``."""

    id: str
    title: str
    text: str


NIGHT_CROSSING = Chunk(
    "night-crossing",
    "Night crossing to Skerrin",
    "The night crossing to Skerrin leaves Port Ellery at 22:40 every day of the year. Since last "
    "spring it has been made by the Marrow Lark, which takes four hours and ten minutes and carries "
    "up to 180 passengers. Cabins are sold at the harbour office until an hour before she sails.",
)
MARROW_LARK = Chunk(
    "marrow-lark",
    "Marrow Lark",
    "The Marrow Lark is powered by hydrogen fuel cells, which feed two electric motors of 900 "
    "kilowatts each. She was built in Ostrava Bay, is 58 metres long, and bunkers compressed "
    "hydrogen from trailers on the quay. A battery covers the manoeuvres in harbour.",
)
ON_THEME = (
    NIGHT_CROSSING,
    MARROW_LARK,
    Chunk(
        "port-ellery",
        "Port Ellery",
        "Port Ellery is the mainland harbour for the Skerrin ferries. The terminal stands on the "
        "north quay, has a heated waiting room and a small canteen, and opens two hours before each "
        "sailing. Buses from the railway station meet every crossing, the night one included.",
    ),
    Chunk(
        "skerrin-timetable",
        "Timetable of the Skerrin ferries",
        "In winter three ferries a day sail to Skerrin: 07:15, 13:30 and the night crossing at "
        "22:40. In summer a fourth leaves at 17:00. In strong westerly wind the harbour master may "
        "hold a sailing back; notices are put up at the terminal.",
    ),
)
NIGHT_CROSSING_COPY = Chunk(
    "night-crossing-mirror",
    "Night crossing to Skerrin (copy)",
    "Updated this week. The night crossing to Skerrin leaves Port Ellery at 22:40 every day of the "
    "year. Since last spring it has been made by the Marrow Lark, which takes four hours and ten "
    "minutes and carries up to 180 passengers.",
)
OFF_THEME = (
    Chunk(
        "sourdough",
        "Keeping a sourdough starter",
        "Feed the starter with equal weights of flour and water once a day, and keep it at room "
        "temperature while you bake often. In the refrigerator it needs a feed only once a week. A "
        "layer of grey liquid on top means that it is hungry, not that it has died.",
    ),
    Chunk(
        "night-vision",
        "How owls see at night",
        "An owl's eyes are tubes rather than balls, fixed in the skull, so the bird turns its whole "
        "head. The retina is dense with rods, which answer to very little light but not to colour, "
        "and a mirror behind it sends what was missed through the rods a second time.",
    ),
    Chunk(
        "power-drill",
        "Choosing a cordless drill",
        "For shelves and furniture a drill of 12 volts is enough; for masonry take 18 volts and a "
        "hammer action. Two small batteries are handier than a large one. The chuck should open to "
        "13 millimetres, and the clutch should slip before the screw head does.",
    ),
    Chunk(
        "big-wheel",
        "The big wheel at the fair",
        "The wheel turns once in nine minutes and holds thirty gondolas of four seats. It is at its best "
        "after dark, when the whole town lies below. Dogs may ride along; ice cream may not. The last round "
        "starts at a quarter to ten.",
    ),
    Chunk(
        "violin-strings",
        "When to change violin strings",
        "Gut strings sound warm and last a few months; synthetic ones last about twice as long; "
        "steel is bright and holds its pitch in damp rooms. Change one string at a time, so that the "
        "bridge stays upright and the soundpost does not fall.",
    ),
    Chunk(
        "tomato-blight",
        "Late blight in tomatoes",
        "Brown patches with a pale edge on the leaves after warm, wet weather are the first sign. "
        "Remove the plants at once and do not compost them, since the spores winter in the soil. "
        "Plants under a roof stay dry and are seldom hit.",
    ),
    Chunk(
        "router-reset",
        "Resetting a home router",
        "Hold the recessed button for ten seconds until all lights blink, then let go and wait three "
        "minutes. The name and the key of the wireless network are afterwards those printed on the "
        "underside. Write your own settings down beforehand.",
    ),
    Chunk(
        "chess-opening",
        "The London System",
        "White puts the pawn on d4, the bishop on f4 and the knight on f3, almost whatever Black "
        "does. The set-up is solid and quick to learn, which is why club players like it; its price "
        "is that the early game holds few surprises for the other side.",
    ),
    Chunk(
        "marathon-taper",
        "The last three weeks before a marathon",
        "Cut the weekly distance by a fifth, then by two fifths, then by half, and keep the pace of "
        "what remains. Sleep matters more than a last long run. Nothing new on the day: neither "
        "shoes nor breakfast nor drink.",
    ),
    Chunk(
        "coffee-grind",
        "Grind size and extraction",
        "If the coffee tastes sour, grind finer; if it tastes bitter, grind coarser. Water between "
        "91 and 96 degrees suits most roasts. A burr grinder gives pieces of one size, a blade "
        "grinder gives dust and gravel together.",
    ),
    Chunk(
        "glacier-flow",
        "Why glaciers move",
        "Ice deforms under its own weight, and where the bed is warm the glacier also slides on a "
        "film of water. The middle flows faster than the sides, so stakes set in a straight line "
        "bend into an arc within a year.",
    ),
    Chunk(
        "invoice-rules",
        "What an invoice must show",
        "Name and address of both sides, a number that occurs once, the date, what was delivered, "
        "and the tax apart from the net amount. Below 250 the small form will do: seller, date, "
        "goods and total. Keep copies for ten years.",
    ),
    Chunk(
        "cat-teeth",
        "Brushing a cat's teeth",
        "Begin with a finger and a drop of tuna water, and let the cat lick it off. After a week use "
        "a soft brush with paste made for cats, since the foam of ours makes them sick. Half a "
        "minute on each side, every second day.",
    ),
    Chunk(
        "paper-cranes",
        "Folding a paper crane",
        "Start with the coloured side down and fold both diagonals and both middles. Collapse the "
        "square into a smaller one, fold the loose edges to the centre, and lift the top sheet into "
        "a long diamond. Neck and tail are reverse folds.",
    ),
    Chunk(
        "museum-hours",
        "Opening hours of the tile museum",
        "The tile museum opens from Tuesday to Sunday, ten to six, and shuts its doors on the first "
        "of January. Tickets are cheaper after four. The workshop in the old kiln house takes "
        "children from the age of seven.",
    ),
)
DOCUMENTS: tuple[Chunk, ...] = (
    OFF_THEME[0],
    NIGHT_CROSSING,
    *OFF_THEME[1:4],
    ON_THEME[2],
    *OFF_THEME[4:7],
    MARROW_LARK,
    *OFF_THEME[7:9],
    NIGHT_CROSSING_COPY,
    *OFF_THEME[9:12],
    ON_THEME[3],
    *OFF_THEME[12:],
)
"""In the order the retriever gave them: shuffled, with the copy after its original."""
