"""
Check notes against the history that they claim to be about.

A model that writes notes invents now and then: a path, a command, words the user never
said. Code can tell that such a thing occurs nowhere in the history; it cannot tell whether
a sentence is true. What is looked for occurs in notes as exact strings: paths, commands and
identifiers in code marks, names with an underscore, hashes of commits, and quotations.

Linear in the size of the evidence, whatever it holds.
"""

import re
from collections.abc import Iterator, Sequence

UNVERIFIED = "(unverified)"

# More than this no useful notes hold; each claim costs one pass over the evidence.
_MOST_CLAIMS = 300
# Asking again costs a whole set of notes: up to this many, or this share of all that is named, are
# only marked. Careful notes have a few, such as a path that was put together, or a value in other words.
_FEW, _FEW_SHARE = 3, 0.2
_QUOTED_WORDS = 3
# So many different references make it odd that notes have none.
_MANY_REFERENCES = 10
_SHORTEST = 4

_CODE = re.compile(r"(?<!`)`([^`\n]{2,300})`(?!`)")
_FENCE = re.compile(r"^```[^\n]*\n(.{0,20000}?)^```", re.DOTALL | re.MULTILINE)
_URL = re.compile(r"\bhttps?://[^\s<>\"'`)\]}]{3,500}")
_PATH = re.compile(r"(?<![\w/.:~@-])(?:~|\.{1,2})?/?[\w.@+-]{1,100}(?:/[\w.@+-]{1,100}){1,30}/?")
_FILE = re.compile(
    r"(?<![\w/.@-])[\w@+-][\w.@+-]{0,100}\.(?:py|pyi|ts|tsx|js|jsx|mjs|cjs|json|jsonl|toml|ya?ml|md|rst|txt|rs|go|java"
    r"|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|sh|bash|sql|html|css|scss|vue|svelte|lock|cfg|ini|env|xml|csv|log|ipynb)\b"
)
_NAME = re.compile(r"(?<![\w/.-])[A-Za-z]\w{0,80}_\w{1,80}(?![\w/-]|\.\w)")
# A commit's hash: letters and digits, as whole numbers and words are everywhere.
_HASH = re.compile(r"(?<![\w/.-])(?=[a-f]{0,40}\d)(?=\d{0,40}[a-f])[0-9a-f]{7,40}(?![\w/-]|\.\w)")
_QUOTE = re.compile(r"[\"“„«]([^\"“”„«»\n]{8,300})[\"”“»]")
_LINE_REFERENCE = re.compile(r"(?::\d{1,9}(?:-\d{1,9})?){1,4}$")
_TRIMMED = ".,;:!?)('\"*"
# `Parser.read` in code marks, where the history has a class and its method apart.
_DOTTED = re.compile(r"[^\W\d]\w{0,80}(?:\.[^\W\d]\w{0,80}){1,6}")
_ESCAPED_SPACE = re.compile(r"\\[nrt]")


def unsupported(notes: str, evidence: Sequence[str]) -> tuple[str, ...]:
    """
    What *notes* name that occurs nowhere in *evidence*, as it stands there, each once.

    Args:
        notes: What the model wrote.
        evidence: All texts of the replaced range, arguments and results too, and of the brief.

    Compared without case, escapes and differences in white space. A path is supported by its
    last two parts: notes may name the whole of what the history names from a folder.
    """
    named = claims(notes)
    if not named:
        return ()
    known = _plain("\n".join(evidence))
    return tuple(claim for claim in named if not _is_supported(claim, known))


def claims(notes: str) -> tuple[str, ...]:
    """What *notes* name that can be looked for, each once."""
    return tuple(dict.fromkeys(_claims(notes)))[:_MOST_CLAIMS]


def are_many(invented: Sequence[str], notes: str) -> bool:
    """Whether so much of what *notes* name is *invented* that it is worth asking again."""
    return len(invented) > _FEW and len(invented) > _FEW_SHARE * len(claims(notes))


def mark_unverified(notes: str, invented: Sequence[str]) -> str:
    """*notes* with "(unverified)" after every occurrence of *invented*, after their code or quote mark."""
    # Backwards, so that a claim comes before those that it begins with.
    known = sorted({claim for claim in invented if claim}, reverse=True)
    if not known:
        return notes
    # A closing mark is taken with the claim and not given back, so that a second run finds the first.
    pattern = re.compile(
        "(?<![\\w])(?:" + "|".join(map(re.escape, known)) + ')(?!\\w)[`"”“»]?+(?! \\(unverified\\))'
    )
    return pattern.sub(lambda match: f"{match.group()} {UNVERIFIED}", notes)


def lacks_references(notes: str, evidence: Sequence[str]) -> bool:
    """Whether *notes* name no path, command or identifier of *evidence*, although it holds many."""
    if not _has_many_references(evidence):
        return False
    named = list(dict.fromkeys([*_claims(notes), *(match.group() for match in _NAME.finditer(notes))]))
    if not named:
        return True
    known = _plain("\n".join(evidence))
    return not any(_is_supported(claim, known) for claim in named[:_MOST_CLAIMS])


def _claims(notes: str) -> Iterator[str]:
    for fence in _FENCE.finditer(notes):
        for line in fence[1].splitlines():
            if len(line.strip()) >= _SHORTEST:
                yield line.strip()
    prose = _FENCE.sub("\n", notes)
    for code in _CODE.finditer(prose):
        if len(code[1].strip()) >= _SHORTEST and not code[1].isdigit():
            yield code[1].strip()
    prose = _CODE.sub(" ", prose)
    for quote in _QUOTE.finditer(prose):
        if len(quote[1].split()) >= _QUOTED_WORDS or not quote[1].isascii():
            yield quote[1].strip()
    for url in _URL.finditer(prose):
        yield url.group().rstrip(_TRIMMED)
    prose = _URL.sub(" ", prose)
    for path in _PATH.finditer(prose):
        if _is_path(path.group()):
            yield path.group().rstrip(_TRIMMED)
    prose = _PATH.sub(" ", prose)
    for pattern in (_FILE, _NAME, _HASH):
        for match in pattern.finditer(prose):
            yield match.group()


def _is_path(text: str) -> bool:
    """Whether *text* is a path and not "and/or", "3/4" or "input/output"."""
    return text.startswith("~") or "." in text or "_" in text or text.count("/") > 1


def _is_supported(claim: str, known: str) -> bool:
    plain = _plain(claim)
    if plain in known:
        return True
    # An ellipsis in a quotation, and what a call is given in prose: `parse(text)`.
    parts = [part.strip() for part in re.split(r"\.\.\.|…", plain) if part.strip()]
    if len(parts) > 1:
        return all(part in known for part in parts)
    bare = _LINE_REFERENCE.sub("", plain).rstrip("/")
    bare = re.sub(r"\([^()]{0,200}\)$", "", bare)
    if bare and bare in known:
        return True
    if _DOTTED.fullmatch(bare) and not _FILE.fullmatch(bare):
        return all(re.search(rf"\b{part}\b", known) for part in bare.split("."))
    if " " in bare or "/" not in bare:
        return False
    folder, name = bare.split("/")[-2:]
    suffix = f"{folder}/{name}"
    return bool(folder and name) and len(suffix) >= _SHORTEST and suffix in known


def _has_many_references(evidence: Sequence[str]) -> bool:
    found: set[str] = set()
    for text in evidence:
        for match in _PATH.finditer(text[:100_000]):
            if _is_path(match.group()):
                found.add(match.group())
                if len(found) >= _MANY_REFERENCES:
                    return True
    return False


def _plain(text: str) -> str:
    """*text* without case, JSON's and the shell's escapes, and differences in white space."""
    if "\\" in text:
        text = _ESCAPED_SPACE.sub(" ", text).replace("\\", "")
    return " ".join(text.casefold().replace("\u2019", "'").split())
