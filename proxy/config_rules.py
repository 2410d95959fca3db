"""
Say what the value of a key may be.

One rule per key. A rule knows neither the key nor where the value came from: it says
whether a value fits, what was expected, and what a person probably meant.
"""

import difflib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Auto = Literal["auto"]

LARGEST = 2**63 - 1  # where TOML's integers end, and SQLite's
LONGEST_SHOWN = 60  # characters of a faulty value; more of it would hide the message


class Rule(ABC):
    """What a value may be, in a file and in an environment variable."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """The end of the sentence "expected ..."."""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Whether a value as TOML reads it fits."""

    def keep(self, value: object) -> object:
        """An accepted value in the type that the table has for it."""
        return value

    def read(self, text: str) -> object:
        """A text from the environment as TOML would have it; as it is where it reads as nothing else."""
        return text

    def show(self, value: object) -> str:
        """A value for a message; overridden where it could be a secret."""
        return shown(value)

    def hint(self, value: object) -> str:
        """What a person who wrote this unfit *value* should write; empty where nothing is likely."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Rule):
    """A whole number in a closed range, or "auto" where that is allowed."""

    least: int
    most: int = LARGEST
    auto: bool = False

    @property
    def expected(self) -> str:
        upper = f" to {self.most}" if self.most < LARGEST else " up"
        return f"a whole number from {self.least}{upper}" + (' or "auto"' if self.auto else "")

    def accepts(self, value: object) -> bool:
        if self.auto and value == "auto":
            return True
        # In Python True is an int, in TOML it is not.
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most

    def read(self, text: str) -> object:
        # Twenty digits hold every number up to LARGEST; int() refuses thousands.
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Rule):
    """
    A finite number in a range.

    Attributes:
        above: Lower end, not in the range itself; None for a range that begins with `least`.
        below: Upper end, not in the range itself; None for a range that ends with `most`.
    """

    least: float = 0.0
    most: float = 1.0
    above: float | None = None
    below: float | None = None

    @property
    def expected(self) -> str:
        lower = f"from {self.least:g}" if self.above is None else f"above {self.above:g}"
        upper = f"up to {self.most:g}" if self.below is None else f"below {self.below:g}"
        return f"a number {lower}, {upper}"

    def accepts(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False
        if self.above is not None and not value > self.above:
            return False
        if self.below is not None and not value < self.below:
            return False
        return (self.above is not None or value >= self.least) and (
            self.below is not None or value <= self.most
        )

    def keep(self, value: object) -> object:
        return float(value) if isinstance(value, int) else value

    def read(self, text: str) -> object:
        return (
            float(text) if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) else text
        )

    def hint(self, value: object) -> str:
        # Below 2 it is more likely a slip than a percentage.
        if self.most == 1 and isinstance(value, int | float) and 2 <= value <= 100:
            return f"it is a share: {value / 100:g} for {value:g} percent"
        return ""


@dataclass(frozen=True, slots=True)
class OneOf(Rule):
    """One of a few words."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        return "one of " + ", ".join(json.dumps(choice) for choice in self.choices)

    def accepts(self, value: object) -> bool:
        return value in self.choices

    def hint(self, value: object) -> str:
        near = nearest(value, self.choices) if isinstance(value, str) else None
        return f'did you mean "{near}"?' if near else ""


@dataclass(frozen=True, slots=True)
class Flag(Rule):
    """True or false."""

    @property
    def expected(self) -> str:
        return "true or false"

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)

    def read(self, text: str) -> object:
        return {"true": True, "false": False}.get(text.lower(), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Rule):
    """
    A text.

    Attributes:
        what: The end of the sentence "expected ...".
        problem: What is wrong with a text, as a remedy; None where nothing is.
        may_be_secret: Whether people put keys here by mistake: then the text is never shown.
    """

    what: str
    problem: Callable[[str], str | None]
    may_be_secret: bool = False

    @property
    def expected(self) -> str:
        return self.what

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and self.problem(value) is None

    def show(self, value: object) -> str:
        # An address with an @ carries a password.
        if isinstance(value, str) and (self.may_be_secret or "@" in value):
            return f"a text of {len(value)} characters"
        return shown(value)

    def hint(self, value: object) -> str:
        return (self.problem(value) or "") if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Several(Rule):
    """
    A list of texts; in the environment they are parted by commas.

    Attributes:
        what: The end of the sentence "expected a list of ...".
        problem: What is wrong with one of them, as a remedy; None where nothing is.

    They are never shown: keys are such lists.
    """

    what: str
    problem: Callable[[str], str | None]

    @property
    def expected(self) -> str:
        return f"a list of {self.what}"

    def accepts(self, value: object) -> bool:
        return isinstance(value, list | tuple) and all(
            isinstance(text, str) and self.problem(text) is None for text in value
        )

    def keep(self, value: object) -> object:
        assert isinstance(value, list | tuple)
        return tuple(dict.fromkeys(value))

    def read(self, text: str) -> object:
        return [part.strip() for part in text.split(",") if part.strip()]

    def show(self, value: object) -> str:
        if isinstance(value, list | tuple):
            return f"a list of {len(value)}"
        return f"a text of {len(value)} characters" if isinstance(value, str) else shown(value)

    def hint(self, value: object) -> str:
        if isinstance(value, str):
            return "write it in brackets, as a list of one"
        texts = [text for text in value if isinstance(text, str)] if isinstance(value, list | tuple) else []
        remedies = [remedy for text in texts if (remedy := self.problem(text))]
        return remedies[0] if remedies else "each of them is a text in quotes"


def nearest(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that looks most like *name*, whatever its case and its dashes."""
    close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1)
    return close[0] if close else None


def shown(value: object) -> str:
    """A value on one short line, as TOML writes it."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = json.dumps(value, ensure_ascii=not value.isprintable())
        case int() if abs(value) > LARGEST:
            # Python refuses to write a number of more than 4300 digits.
            return f"a whole number beyond {LARGEST}"
        case dict():
            return "a table"
        case list():
            return "a list"
        case tuple():
            return "a list" if value else "an empty list"
        case _:
            text = str(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
