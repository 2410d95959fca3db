"""
How many tokens does a view take, part by part?

What the upstream said of the same prompt before counts exactly; only what came after it
is an estimate. Near a limit, where the estimate could decide wrongly, an upstream that
can count is asked. Nothing here fails a request.
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from proxy.core.budget import Budget
from proxy.core.messages import Conversation, Role, Shown, View
from proxy.core.plan import Sizes
from proxy.core.rewrite import Rewrite
from proxy.counting import Counts, measure
from proxy.tokenizer import ATTACHMENT_TOKENS, Tokenizer

# An estimate that is this share of its unknown part away from a limit decides safely,
# and the more so the better the model's estimates have been.
_LEAST_DOUBT = 0.05
# Prompts shorter than this are not worth a question.
_LEAST_ASKED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """
    A view's size.

    Attributes:
        sizes: Its parts; they add up to `total`.
        total: Tokens of the whole prompt.
        raw: What the tokenizer alone says of it, for learning.
        attachments: Pictures and files in it.
        scale: Tokens for one of the tokenizer's.
        keys: What stands for each prefix of this prompt, the whole one last.
    """

    sizes: Sizes
    total: int
    raw: int
    attachments: int
    scale: float
    keys: tuple[bytes, ...]

    @property
    def key(self) -> bytes:
        """Stands for exactly this prompt."""
        return self.keys[-1]

    @property
    def whole(self) -> int:
        """Tokens of the client's own history, as if nothing had been rewritten."""
        return self.sizes.fixed + sum(self.sizes.whole)


class Sizing:
    """Measures views. For one event loop; long texts are counted in a thread."""

    def __init__(self, tokenizer: Tokenizer, counts: Counts) -> None:
        self._tokenizer = tokenizer
        self.counts = counts

    async def measure(
        self,
        conversation: Conversation,
        rewrite: Rewrite | None,
        view: View,
        *,
        message_bytes: Callable[[Shown], bytes],
        outside: bytes,
        budget: Budget | None,
        ask: Callable[[], Awaitable[int | None]] | None = None,
    ) -> Measured:
        """
        Args:
            conversation: The client's history.
            rewrite: How it is shown.
            view: The history as it is shown.
            message_bytes: What stands in the body for a message of the view.
            outside: Prompt fields outside the messages.
            budget: To tell whether an estimate is near a limit; None if there is none.
            ask: Has the upstream count this very prompt; None where it cannot.
        """
        keys = prompt_keys(outside, view, message_bytes)
        long = self._tokenizer.is_long(conversation.messages, conversation.fixed_texts)
        count_all = self._count_parts
        parts = (
            await asyncio.to_thread(count_all, conversation, rewrite, view)
            if long
            else count_all(conversation, rewrite, view)
        )
        raw = parts.total
        known = self.counts.known(conversation.model, keys)
        factor = self.counts.factor(conversation.model)
        attachments = sum(len(shown.message.attachments) for shown in view)
        surplus = round(self.counts.attachment(conversation.model) / factor) - ATTACHMENT_TOKENS
        if attachments and surplus:
            parts = _with_surplus(parts, conversation, rewrite, surplus)
        estimates = self._by_message(conversation, rewrite, parts, surplus)
        fixed = parts.total - sum(estimates)
        total = measure(estimates, fixed=fixed, factor=factor, known=known)
        unknown = total - (known[1] if known else 0)
        if ask is not None and budget is not None and total >= _LEAST_ASKED:
            doubt = max(_LEAST_DOUBT, self.counts.estimate_error(conversation.model)) * unknown
            limits = (budget.compact_at * budget.limit, float(budget.limit))
            is_close = budget.is_near_a_limit(total) and any(abs(total - limit) <= doubt for limit in limits)
            # What decides and cuts after a restart must not be blinder than what did before it.
            is_blind = not self.counts.has_learned(conversation.model)
            # What is about to be rewritten is counted first: every size that follows hangs on it.
            is_over = bool(unknown) and (budget.is_over(total) or not budget.fits(total))
            if is_close or is_blind or is_over:
                exact = await ask()
                if exact:
                    total = exact
                    self.counts.remember(conversation.model, keys[-1], exact)
                    if is_blind:
                        self.counts.learn(conversation.model, raw, exact, attachments)
        return Measured(
            sizes=_scaled(parts, total),
            total=total,
            raw=raw,
            attachments=attachments,
            scale=total / parts.total if parts.total else 1.0,
            keys=tuple(keys),
        )

    def counter(self, measured: Measured) -> Callable[[str], int]:
        """Counts one text as those of the view that was *measured*."""
        return lambda text: math.ceil(self._tokenizer.count(text) * measured.scale)

    def _count_parts(self, conversation: Conversation, rewrite: Rewrite | None, view: View) -> Sizes:
        count = self._tokenizer
        end = conversation.brief_end
        whole = count.messages(conversation.messages[end:])
        replaced = rewrite.replaced if rewrite else 0
        block = count.count(rewrite.block) if rewrite and rewrite.replaced else 0
        shown = [0] * replaced + list(whole[replaced:])
        for cut in rewrite.cuts if rewrite else ():
            at_view = len(view) - len(whole) + cut.at
            shown[cut.at] = count.shown(view[at_view])
        brief = count.messages(conversation.messages[:end])
        fixed = sum(map(count.count, conversation.fixed_texts)) + sum(brief)
        return Sizes(fixed=fixed, block=block, shown=tuple(shown), whole=whole)

    def _by_message(
        self, conversation: Conversation, rewrite: Rewrite | None, parts: Sizes, surplus: int
    ) -> Sequence[int]:
        """The parts as one number for each message of the view."""
        first = conversation.messages[: conversation.brief_end]
        counted = self._tokenizer.messages(first)
        brief = [size + surplus * len(m.attachments) for size, m in zip(counted, first, strict=True)]
        replaced = rewrite.replaced if rewrite else 0
        if replaced:
            users = [i for i, m in enumerate(conversation.messages[: len(brief)]) if m.role is Role.USER]
            if users:
                brief[users[-1]] += parts.block
            else:
                brief.append(parts.block)
        return [*brief, *parts.shown[replaced:]]


def prompt_keys(outside: bytes, view: View, message_bytes: Callable[[Shown], bytes]) -> list[bytes]:
    """For every prefix of a prompt what stands for it; entry `i` covers `i` messages."""
    now = hashlib.blake2b(outside, digest_size=16).digest()
    keys = [now]
    for shown in view:
        known = shown.message.memo.key
        if not shown.is_word_for_word:
            now = _next_key(now, message_bytes(shown))
        elif known is not None and known[0] == now:
            now = known[1]
        else:
            known = shown.message.memo.key = now, _next_key(now, message_bytes(shown))
            now = known[1]
        keys.append(now)
    return keys


def _next_key(now: bytes, piece: bytes) -> bytes:
    return hashlib.blake2b(now + piece, digest_size=16).digest()


def _with_surplus(parts: Sizes, conversation: Conversation, rewrite: Rewrite | None, surplus: int) -> Sizes:
    """The parts where each attachment takes *surplus* tokens more than the tokenizer takes it for."""
    end, replaced = conversation.brief_end, rewrite.replaced if rewrite else 0
    extra = [surplus * len(message.attachments) for message in conversation.messages]
    return Sizes(
        fixed=parts.fixed + sum(extra[:end]),
        block=parts.block,
        shown=tuple(
            size + more if at >= replaced else size
            for at, (size, more) in enumerate(zip(parts.shown, extra[end:], strict=True))
        ),
        whole=tuple(size + more for size, more in zip(parts.whole, extra[end:], strict=True)),
    )


def _scaled(parts: Sizes, total: int) -> Sizes:
    scale = total / parts.total if parts.total else 1.0
    # Sizes are not negative, so that this rounds down.
    shown = tuple([int(size * scale) for size in parts.shown])
    block = int(parts.block * scale)
    whole = tuple([int(size * scale) for size in parts.whole]) if parts.whole != parts.shown else shown
    return Sizes(fixed=total - block - sum(shown), block=block, shown=shown, whole=whole)
