"""
Put figures into their place in `docs/speed.md`.

Each section of that page holds one pair of comments, `<!-- NAME -->` and `<!-- end of NAME -->`;
what stands between them is the output of the section's command.
"""

from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "speed.md"


def put_into_page(name: str, figures: str, page: Path = PAGE) -> None:
    """
    Replace what stands between the comments of *name*.

    Raises:
        ValueError: If the page has no such place.
    """
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page.name} has no place for {name!r}; it needs {begin.strip()!r} and {end!r}")
    page.write_text(f"{before}{begin}{figures.strip()}\n{end}{after}", encoding="utf-8")
