"""
What has the upstream itself said of prompts?

Its own count of a prompt is exact, so it is remembered under a digest of that prompt;
only the messages after it are estimated, and estimates are corrected by a factor per
model. Nothing here does I/O; texts are counted by `tokenizer`.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.tokenizer import ATTACHMENT_TOKENS

# About 2 MB when full; a session needs one entry a turn.
REMEMBERED_PROMPTS = 10_000
# Names come from clients, so there is a limit to them.
REMEMBERED_MODELS = 1_000
# Below this the template's own text outweighs what the tokenizer does.
LEAST_SAMPLE = 256
# No window is larger; what reports more reports nonsense.
MOST_TOKENS = 100_000_000
# Tokenizers of real models lie between 0.7 and 2; beyond this a report is nonsense, or
# the server cut the prompt without a word.
FACTOR_RANGE = (0.3, 4.0)
# A change (another model behind the name) is followed within about ten answers, one odd
# answer moves little.
WEIGHT = 0.2
# Between o200k and a model that was never seen, by experience with code and English.
UNSEEN_ERROR = 0.25
# The first sample sets the factor, so it says nothing about the next.
FIRST_ERROR = 0.1
# A first prompt with pictures that is off by more than this says what they cost, not how the
# model's tokens run.
PLAUSIBLE = (0.5, 2.0)
# Some servers bill the text of the base64: a few megabytes at most.
MOST_ATTACHMENT_TOKENS = 4_000_000


@dataclass(slots=True)
class _Learned:
    factor: float
    error: float


class Counts:
    """
    The upstream's counts, exact ones by prompt and a factor by model. For one event loop.

    Args:
        prompts: Number of prompts that are remembered, the longest unused go first.
        models: Number of models, likewise.
    """

    def __init__(self, *, prompts: int = REMEMBERED_PROMPTS, models: int = REMEMBERED_MODELS) -> None:
        self._prompts: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        self._prompt_capacity = prompts
        self._models: OrderedDict[str, _Learned] = OrderedDict()
        self._model_capacity = models
        self._attachments: OrderedDict[str, float] = OrderedDict()

    def remember(self, model: str, key: bytes, tokens: int) -> None:
        """
        The upstream said that the prompt with digest *key* has *tokens*.

        Nonsense is not believed; a server that does not count reports 0.
        """
        if not 0 < tokens <= MOST_TOKENS:
            return
        self._prompts[model, key] = tokens
        self._prompts.move_to_end((model, key))
        if len(self._prompts) > self._prompt_capacity:
            self._prompts.popitem(last=False)

    def known(self, model: str, keys: Sequence[bytes]) -> tuple[int, int] | None:
        """The last of *keys* whose prompt was counted: its index, and the tokens."""
        for index in range(len(keys) - 1, -1, -1):
            entry = (model, keys[index])
            tokens = self._prompts.get(entry)
            if tokens is not None:
                self._prompts.move_to_end(entry)
                return index, tokens
        return None

    def learn(self, model: str, estimated: int, actual: int, attachments: int = 0) -> None:
        """
        What was *estimated*, before any factor, has *actual* tokens.

        Both may be of a whole prompt or of its new part. Too small ones, and nonsense, are ignored.
        The first counts fully, later ones gradually. Of a prompt with *attachments*, which were
        estimated at `ATTACHMENT_TOKENS` each, it is these that the difference is about.
        """
        if not (LEAST_SAMPLE <= estimated <= MOST_TOKENS and LEAST_SAMPLE <= actual <= MOST_TOKENS):
            return
        least, most = FACTOR_RANGE
        ratio = min(max(actual / estimated, least), most)
        learned = self._models.get(model)
        if attachments:
            self._learn_attachment(model, estimated - attachments * ATTACHMENT_TOKENS, actual, attachments)
            if learned is not None or not PLAUSIBLE[0] <= actual / estimated <= PLAUSIBLE[1]:
                return
        if learned is None:
            self._models[model] = _Learned(factor=ratio, error=FIRST_ERROR)
            if len(self._models) > self._model_capacity:
                self._models.popitem(last=False)
            return
        self._models.move_to_end(model)
        missed = min(abs(ratio - learned.factor) / ratio, 1.0)
        learned.error += WEIGHT * (missed - learned.error)
        learned.factor += WEIGHT * (ratio - learned.factor)

    def _learn_attachment(self, model: str, text: int, actual: int, attachments: int) -> None:
        cost = (actual - self.factor(model) * text) / attachments
        cost = min(max(cost, 0.0), float(MOST_ATTACHMENT_TOKENS))
        before = self._attachments.get(model)
        self._attachments[model] = cost if before is None else before + WEIGHT * (cost - before)
        self._attachments.move_to_end(model)
        if len(self._attachments) > self._model_capacity:
            self._attachments.popitem(last=False)

    def attachment(self, model: str) -> float:
        """Tokens of a picture, as the upstream counts them."""
        return self._attachments.get(model, float(ATTACHMENT_TOKENS))

    def has_learned(self, model: str) -> bool:
        """Whether there is a factor that the upstream's own words were behind."""
        return model in self._models

    def factor(self, model: str) -> float:
        """What an estimate is to be multiplied by; 1.0 for a model without an answer yet."""
        learned = self._models.get(model)
        return learned.factor if learned else 1.0

    def estimate_error(self, model: str) -> float:
        """By what share of the real number a corrected estimate is usually off, 0 to 1."""
        learned = self._models.get(model)
        return learned.error if learned else UNSEEN_ERROR


def measure(
    estimates: Sequence[int],
    *,
    fixed: int = 0,
    factor: float = 1.0,
    known: tuple[int, int] | None = None,
) -> int:
    """
    The tokens of a prompt: what is known of its beginning, and an estimate of the rest.

    Args:
        estimates: Of each message, before the factor.
        fixed: Estimate of what stands outside the messages, such as tools.
        factor: As `Counts.factor` has it.
        known: How many leading messages were counted by the upstream, and the tokens it
            said, `fixed` included.
    """
    if known is None:
        return math.ceil(factor * (fixed + sum(estimates)))
    covered, tokens = known
    return tokens + math.ceil(factor * sum(estimates[covered:]))
