"""
How large will the next prompt be at least, as far as the last turns tell?

What is made ready for a prompt over `compact_at` is in the way of one that is not, so this
guesses low.
"""

from proxy.core.messages import Conversation, Role
from proxy.core.plan import Sizes

# The least of three is reached by the next in three cases of four, if turns are alike.
_LOOKED_AT_TURNS = 3


def expect_prompt(conversation: Conversation, sizes: Sizes, completion: int) -> int:
    """
    The next prompt: this one, its answer, and the least that the tools of the last turns said.

    Args:
        conversation: As it was answered.
        sizes: Of its view.
        completion: Tokens of the answer; 0 where the upstream does not say.
    """
    end = conversation.brief_end
    results = [
        sum(sizes.whole[at - end] for at in range(turn.start, turn.end) if _is_result(conversation, at))
        for turn in conversation.turns[-_LOOKED_AT_TURNS:]
    ]
    return sizes.total + completion + min(results, default=0)


def _is_result(conversation: Conversation, at: int) -> bool:
    return conversation.messages[at].role is Role.TOOL
