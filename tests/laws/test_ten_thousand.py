"""
Ten thousand generated conversations through plan, splice and trim.

Seeded, so that a failure names the seed that shows it again. Each is looked at when it
arrives whole, and once more one turn later.
"""

from random import Random

from proxy.core.cutting import cut_arguments, cut_middle
from proxy.core.messages import Conversation, Kind
from proxy.core.splice import splice
from proxy.dialects.chat_completions import CHAT_COMPLETIONS
from tests.laws.generated import body, conversation, prefixes
from tests.laws.judging import check_view, extends
from tests.laws.walk import Sent, Walker, measure, tokens

CONVERSATIONS = 10_000


def test_ten_thousand_conversations_stay_within_the_budget_and_keep_the_laws() -> None:
    seen = dict.fromkeys(("compacted", "trimmed", "untouched", "impossible", "folded"), 0)
    for seed in range(CONVERSATIONS):
        try:
            for outcome in _look_at(seed):
                seen[outcome] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    # What was generated has to reach every branch, often.
    assert all(times > CONVERSATIONS // 100 for times in seen.values()), seen


def _look_at(seed: int) -> list[str]:
    rng = Random(seed)
    messages = conversation(rng, turns=rng.choice((0, 1, 2, 3, 5, 7)), longest=1_200)
    walker = Walker(rng.randrange(200, 1_600), compact_at=rng.choice((0, 0.6, 0.6)))
    outcomes = []
    before: Sent | None = None
    parts = prefixes(messages)
    # Three turns lie between, so that there is something to fold.
    for part in parts[-4::3] if len(parts) > 3 else parts[-1:]:
        sent = walker.send(body(part))
        check_view(part, sent)
        assert sent.size == measure(sent.parsed.conversation, sent.rewrite).total
        if not walker.budget.fits(sent.size):
            assert not is_possible(walker, sent.parsed.conversation, sent), "over the budget without need"
            outcomes.append("impossible")
        if before and sent.rewrite == before.rewrite:
            assert extends(sent.pieces, before.pieces), "the view extends the one before"
        if sent.rewritten:
            again = walker.send(body(part))
            if sent.trimmed and again.compacted:
                # The trim made room for notes over the whole view; that is the end of it.
                check_view(part, again)
                sent, again = again, walker.send(body(part))
            assert again.body == sent.body, "what was stored is found again"
            assert not again.rewritten or not walker.budget.fits(sent.size), "a rewrite rests"
        outcomes.append("trimmed" if sent.trimmed else "compacted" if sent.compacted else "untouched")
        if sent.rewrite and sent.rewrite.folds:
            outcomes.append("folded")
        before = sent
    return outcomes


def is_possible(walker: Walker, conversation: Conversation, sent: Sent) -> bool:
    """Whether the newest turn, each of its texts cut to its core, fits beside the brief and a block."""
    if not conversation.turns:
        return False
    start = conversation.turns[-1].start
    newest = conversation.messages[start:]
    sizes = measure(conversation, None)
    replaced = start - conversation.brief_end
    block = tokens(walker.block(conversation, sent.rewrite, replaced)) if replaced else 0
    least = sizes.fixed + block
    for message in newest:
        least += 4
        for text in message.texts:
            cut = cut_arguments if text.kind is Kind.ARGUMENTS else cut_middle
            # As long as the longest label.
            short = cut(text.text, 80, "the result of " + "x" * 140)
            least += min(tokens(text.text), tokens(short) if short is not None else tokens(text.text))
    return least <= walker.budget.limit


def test_what_was_rendered_is_read_again_as_the_same_messages() -> None:
    for seed in range(200):
        rng = Random(seed)
        sent = Walker(rng.randrange(200, 1_000)).send(body(conversation(rng, 6)))
        again = CHAT_COMPLETIONS.parse(sent.body)
        assert [m.role for m in again.conversation.messages] == [s.message.role for s in sent.view]
        assert CHAT_COMPLETIONS.render(again, splice(again.conversation, None)) == CHAT_COMPLETIONS.render(
            sent.parsed, sent.view
        )
