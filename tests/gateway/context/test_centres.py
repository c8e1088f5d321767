"""Ambiguous requests, and requests whose chunks belong together, pruned with the real encoder."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from gateway.context.asked import ask
from gateway.context.centres import find_centres
from gateway.context.judge import judge, sort_out
from gateway.context.report import Document
from gateway.context.selector import Selector
from tests.gateway.context.test_judge import QUESTION, chunks, encoding
from tests.pruning import Prune

OFF = (
    "Knead the dough for ten minutes and let it rise until it has doubled.",
    "An invoice shows the date, the seller and the total.",
    "White puts the bishop on f4 and the knight on f3.",
)
# Each: the question, two texts (title, text) of one meaning, two of the other.
AMBIGUOUS = {
    "How large is Mercury?": (
        (
            "Mercury (planet)",
            "Mercury is the smallest planet of the solar system, with a diameter of 4,880 kilometres.",
        ),
        (
            "Mercury (planet)",
            "The planet Mercury circles the Sun in 88 days; its craters are large for its size.",
        ),
        (
            "Mercury (element)",
            "Mercury is a metal that is liquid at room temperature and was used in thermometers.",
        ),
        (
            "Mercury (element)",
            "The atomic radius of mercury, a heavy silvery metal, is large: 151 picometres.",
        ),
    ),
    "Where was Michael Jordan born?": (
        (
            "Michael Jordan",
            "Michael Jordan, the basketball player, was born in Brooklyn and played for the Chicago Bulls.",
        ),
        (
            "Michael Jordan's career",
            "Before he won six titles with the Bulls, basketball star Michael Jordan was born in New York.",
        ),
        (
            "Michael I. Jordan",
            "Michael Jordan, a professor at Berkeley, was born in Louisiana and studies machine learning.",
        ),
        (
            "Michael Jordan (researcher)",
            "Born in Ponchatoula, Michael Jordan became a researcher of machine learning.",
        ),
    ),
    "How do I take care of a jaguar?": (
        ("", "A jaguar in a zoo needs care: fresh meat, a large enclosure and water to swim in."),
        (
            "",
            "Keepers take care that the jaguar, a big cat, hunts for food so that the animal is fit.",
        ),
        (
            "",
            "Take your Jaguar to a dealer for care of the engine: the oil of the car is changed every year.",
        ),
        ("", "Jaguar car care: wash the paint by hand, check the brakes and the tyres of the vehicle."),
    ),
    "What is Python used for?": (
        ("", "Python is a programming language used for web servers, scripts and data analysis."),
        ("", "Programmers have used Python for machine learning; the code of this language is easy to read."),
        ("", "The python is a snake; its skin has been used for leather bags and shoes."),
        ("", "A python kills its prey by constriction. The snake's fat was used for medicine in Asia."),
    ),
    "When was Georgia founded?": (
        ("", "Georgia was founded as a British colony in America in 1733; its capital is Atlanta."),
        ("", "James Oglethorpe founded the colony of Georgia, today an American state in the South."),
        ("", "The kingdom of Georgia in the Caucasus was founded around 1008 by Bagrat III in Tbilisi."),
        ("", "Georgia, a country in the Caucasus between Russia and Turkey, was founded anew in 1991."),
    ),
    "Who plays for the Cardinals?": (
        (
            "",
            "The Cardinals are a baseball team in St. Louis; pitcher and shortstop play at Busch Stadium.",
        ),
        ("", "A new shortstop plays baseball for the Cardinals in St. Louis this season and hits home runs."),
        ("", "The Arizona Cardinals play football; their quarterback threw three touchdowns in Glendale."),
        ("", "The quarterback who plays football for the Arizona Cardinals was drafted in the first round."),
    ),
    "How fast is a kite?": (
        (
            "",
            "The kite is a bird of prey with a forked tail; it is not fast, and glides over fields for mice.",
        ),
        ("", "Red kites are raptors whose nests are in oaks. A hunting kite is as fast as a buzzard."),
        (
            "",
            "A kite for sport has two lines and a nylon sail and is fast in strong wind; its string is thin.",
        ),
        ("", "Fly a stunt kite with two hands: pull the left line and the nylon sail turns left, fast."),
    ),
    "What does Apollo mean?": (
        ("", "Apollo was the Greek god of music and of the sun, the son of Zeus and the twin of Artemis."),
        ("", "In Greek myth the name of the god Apollo may mean the destroyer; Zeus was his father."),
        (
            "",
            "Apollo was NASA's programme of flights to the Moon; Saturn V rockets launched astronauts.",
        ),
        ("", "NASA chose the name Apollo to mean a great journey: astronauts flew to the Moon six times."),
    ),
    "How is a bank formed?": (
        ("", "A bank of a river is formed where the water leaves sand and mud on the inside of a bend."),
        ("", "Sediment that the river's current carries is laid down, and so a bank of mud is formed."),
        ("", "To form a bank one needs a licence, capital from shareholders and a board of directors."),
        (
            "",
            "A bank is formed when regulators grant a charter; it takes deposits and lends to customers.",
        ),
    ),
}
# Each: the question, and (title, text) of chunks that it needs together.
TOGETHER = {
    "In which town was the composer of the Saltmarsh Suite born?": (
        ("Saltmarsh Suite", "The Saltmarsh Suite for strings was written by Ida Penhallow in one winter."),
        ("Saltmarsh Suite", "Of the four movements of the Saltmarsh Suite the third is the best known."),
        ("Ida Penhallow", "Ida Penhallow, the composer, was born among fishermen in Mousehole."),
        ("Ida Penhallow", "As a girl in her town Ida Penhallow sang in the choir of the chapel."),
    ),
    "Which is older, the Kestrel bridge or the Marlin tunnel?": (
        ("Kestrel bridge", "The Kestrel bridge over the Ness was opened in 1931 and is built of stone."),
        ("Kestrel bridge", "Two lanes cross the old Kestrel bridge; lorries have to take the ford."),
        ("Marlin tunnel", "The Marlin tunnel was dug below the harbour from 1954 on."),
        ("Marlin tunnel", "Ventilation of the Marlin tunnel was renewed; it is older than the subway."),
    ),
    "How large is Mercury?": (
        ("Mercury (planet)", "Mercury is the smallest planet, with a diameter of 4,880 kilometres."),
        ("Mercury (planet)", "The planet Mercury circles the Sun in 88 days; its craters are large."),
        ("Mercury (planet)", "The large core of the planet Mercury is made of iron."),
    ),
}


def documents(texts: Sequence[tuple[str, str]]) -> list[Document]:
    wanted = [Document(f"d{index}", text, title) for index, (title, text) in enumerate(texts)]
    return [*wanted, *(Document(f"off{index}", text) for index, text in enumerate(OFF))]


@pytest.mark.parametrize("question", AMBIGUOUS)
async def test_two_meanings_of_a_question_are_two_centres(prune: Prune, question: str) -> None:
    report = await prune(question, documents(AMBIGUOUS[question]), keep="safe")
    kept = {verdict.document_id for verdict in report.verdicts if verdict.is_kept}
    assert kept <= {"d0", "d1", "d2", "d3"}
    meanings = {frozenset({"d0", "d1"} & kept), frozenset({"d2", "d3"} & kept)}
    assert {frozenset(centre.document_ids) for centre in report.centres} == meanings
    first, second = (set(centre.theme) for centre in report.centres)
    assert first - second
    assert second - first


@pytest.mark.parametrize("question", TOGETHER)
async def test_chunks_that_belong_together_are_one(prune: Prune, question: str) -> None:
    report = await prune(question, documents(TOGETHER[question]))
    assert sum(verdict.is_kept for verdict in report.verdicts) >= 2
    assert report.centres == ()


async def test_one_chunk_and_copies_of_it_are_no_centres(prune: Prune) -> None:
    question, texts = "How large is Mercury?", AMBIGUOUS["How large is Mercury?"]
    assert (await prune(question, documents(texts[:1]))).centres == ()
    copies = [Document(f"copy{index}", texts[0][1], texts[0][0]) for index in range(4)]
    assert (await prune(question, copies)).centres == ()


def test_looking_for_centres_costs_little() -> None:
    """This thread's processor time, widely bounded, with all of a hundred chunks kept."""
    rng = np.random.default_rng(5)
    sent = chunks(rng, 100)
    encodings = [encoding(rng, 130) for _ in sent]
    asked = ask(QUESTION, encoding(rng, 14))
    judgement = judge(asked, sort_out(QUESTION, sent), sent, encodings, Selector.load().scorers["full"])
    durations = []
    for _ in range(3):
        started = time.thread_time()
        find_centres(judgement, range(100))
        durations.append((time.thread_time() - started) * 1e3)
    assert min(durations) <= 50.0
