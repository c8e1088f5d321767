"""How long a draft becomes: chances, prices, and what they make of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from worker.engine.speculation.budget import Offer, StepPrice, share_out
from worker.engine.speculation.chance import ChanceModel, Evidence
from worker.engine.speculation.drafter import Drafter
from worker.engine.speculation.lookup import Match
from worker.protocol import SpeculationControls

EVEN = ChanceModel(
    base=0.0, per_log_match=0.0, per_agreement=0.0, per_nat=0.0, per_discord=0.0, per_log_seen=0.0
)
"""Every token is as likely right as wrong."""


def test_chances_multiply_along_a_draft() -> None:
    evidence = Evidence(Match(follows=5, num_tokens=3), entropy_nats=1.0, agreement=0.5)
    assert EVEN.chances(evidence, 3) == (0.5, 0.25, 0.125)


def test_each_signal_moves_the_chance_of_the_first_token_its_way() -> None:
    model = ChanceModel()

    def first(match: Match, entropy_nats: float = 0.5, agreement: float = 0.5) -> float:
        return model.chances(Evidence(match, entropy_nats, agreement), 1)[0]

    usual = first(Match(9, 2, 4, 3))
    assert first(Match(9, 8, 4, 3)) > usual, "a longer match"
    assert first(Match(9, 2, 4, 4)) > usual, "places that agree"
    assert first(Match(9, 2, 4, 3), agreement=0.9) > usual, "drafts that came true"
    assert first(Match(9, 2, 4, 3), entropy_nats=3.0) < usual, "an unsure step"


PLAIN = StepPrice(fixed=9.0, sequence=0.0, opening=0.0, trust=1.0)


def given(
    chances: Sequence[tuple[float, ...]], num_sequences: int, price: StepPrice, max_rows: int = 99
) -> list[int]:
    return share_out([Offer(each) for each in chances], num_sequences, max_rows, price)


def test_a_row_is_taken_where_it_makes_a_token_cheaper() -> None:
    # One row and nine for the weights give one token: 10 a token. Another row at 0.1 gives 11 / 1.1 = 10.
    assert given([(0.099,)], 1, PLAIN) == [0]
    assert given([(0.101,)], 1, PLAIN) == [1]


def test_the_likeliest_tokens_of_a_batch_get_the_rows() -> None:
    chances = [(0.9, 0.8, 0.7), (), (0.85, 0.2), (0.3,)]
    assert given(chances, 4, PLAIN, max_rows=3) == [2, 0, 1, 0]
    # 13 rows for 4 tokens: 3.25 a token, so 0.31 is needed, and more with every row that was likely.
    assert given(chances, 4, PLAIN) == [3, 0, 1, 0]


def test_a_full_batch_drafts_only_what_is_nearly_sure() -> None:
    # 32 rows and 9 for the weights give 32 tokens: 0.78 is needed.
    assert given([(0.77,)] * 32, 32, PLAIN) == [0] * 32
    assert given([(0.95,), *[(0.5,)] * 31], 32, PLAIN) == [1, *[0] * 31]


def test_a_draft_in_company_has_to_be_worth_its_attention_call() -> None:
    price = StepPrice(fixed=8.0, sequence=0.0, opening=1.0, trust=1.0)
    # 10 for two tokens: 5 a token. A row and the call, 2, at 0.39 would be 5.02; two tokens share a call.
    assert given([(0.39,), ()], 2, price) == [0, 0]
    assert given([(0.41,), ()], 2, price) == [1, 0]
    assert given([(0.39, 0.38), ()], 2, price) == [2, 0]
    # Alone it attends by one call anyhow: 9 for a token, so 0.12 is enough.
    assert given([(0.12,)], 1, price) == [1]


def test_in_company_chances_are_trusted_less() -> None:
    price = StepPrice(fixed=8.0, sequence=0.0, opening=0.0, trust=0.5)
    # 10 for two tokens: 0.2 is needed, of which 0.5 come true.
    assert given([(0.39,), ()], 2, price) == [0, 0]
    assert given([(0.41,), ()], 2, price) == [1, 0]
    assert given([(0.12,)], 1, price) == [1], "alone as they are: 9 for a token"


def test_a_draft_of_a_fixed_length_is_taken_as_it_is_or_not_at_all() -> None:
    good, bad = Offer((0.9, 0.8, 0.1), is_whole=True), Offer((0.9, 0.1, 0.1), is_whole=True)
    # 13 for four tokens. 3.5 for 1.8 tokens makes it 16.5 for 5.8, 2.84 a token; 3.5 for 1.1 more would be
    # 20 for 6.9, 2.90, although the first token of it alone would be worth its row.
    assert share_out([good, bad], 4, 99, StepPrice(9.0, 0.0, 0.5, trust=1.0)) == [3, 0]
    assert share_out([good, bad], 4, 2, PLAIN) == [0, 0]


def test_rows_beyond_the_cheap_ones_have_to_be_worth_more() -> None:
    price = StepPrice(fixed=10.0, sequence=0.0, opening=0.0, trust=1.0, cheap_rows=3, dear_row=4.0)
    # 12 for two tokens: 0.17 is enough for the third row. The fourth costs 4, and 13 are paid for 2.9 tokens:
    # 0.892 is needed.
    assert given([(0.9, 0.89), ()], 2, price) == [1, 0]
    assert given([(0.9, 0.895), ()], 2, price) == [2, 0]
    assert given([(0.16,), ()], 2, price) == [0, 0]
    assert given([(0.7,), (), (), ()], 4, price) == [0, 0, 0, 0]  # 17 for four tokens: 0.94


@pytest.mark.parametrize("num_sequences", [3, 5, 8])
@pytest.mark.parametrize("opening", [0.0, 0.6, 2.0])
def test_no_other_share_gives_cheaper_tokens(num_sequences: int, opening: float) -> None:
    chances = [(0.9, 0.5, 0.2), (0.6, 0.55), (0.15,)]

    def cost(lengths: tuple[int, ...]) -> float:
        tokens = num_sequences + sum(sum(each[:n]) for each, n in zip(chances, lengths, strict=True))
        opened = sum(n > 0 for n in lengths)
        return (9.0 + 1.2 * num_sequences + opening * opened + sum(lengths)) / tokens

    best = min(itertools.product(range(4), range(3), range(2)), key=cost)
    assert tuple(given(chances, num_sequences, StepPrice(9.0, 0.2, opening, trust=1.0))) == best


def test_a_draft_that_reaches_the_end_of_the_text_goes_round() -> None:
    drafter = Drafter(SpeculationControls(mode="fixed", max_draft=5), EVEN)
    draft = drafter.propose([4, 1, 2, 1, 2], 0.5, max_tokens=99)
    assert draft.token_ids == (1, 2, 1, 2, 1)
    assert len(draft.chances) == 5


def test_a_draft_is_no_longer_than_there_is_room_for() -> None:
    drafter = Drafter(SpeculationControls(mode="fixed", max_draft=5), EVEN)
    assert drafter.propose([4, 1, 2, 1, 2], 0.5, max_tokens=2).token_ids == (1, 2)
    assert drafter.propose([4, 1, 2, 1, 2], 0.5, max_tokens=0).token_ids == ()


def test_what_came_true_counts_also_where_nothing_was_drafted() -> None:
    only_agreement = ChanceModel(0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    drafter = Drafter(SpeculationControls(mode="entropy", max_draft=1), only_agreement)
    text = [1, 2, 3, 1]
    before = drafter.propose(text, 0.5, 0)
    assert before.chances == ()
    drafter.observe([2])  # as the look-up foresaw: 0.5 + 0.2 * (1 - 0.5)
    assert drafter.propose([*text, 2], 0.5, 1).chances[0] == pytest.approx(
        0.6457, abs=1e-4
    )  # 1 / (1 + e^-0.6)
    drafter.observe([9])
    assert drafter.propose([*text, 2, 9, 1], 0.5, 1).chances[0] == pytest.approx(0.6177, abs=1e-4)  # e^-0.48
