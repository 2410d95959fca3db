"""How a text is brought into its room: whole, or with as little of its middle cut out as can be."""

import re

import pytest

from proxy.core.fitting import fit

TEXT = "".join(chr(0x4E00 + i) for i in range(400))
CUT = re.compile(r"\[… (\d+) characters cut out here …\]")


@pytest.mark.parametrize(("room", "is_whole"), [(len(TEXT) + 2, True), (len(TEXT) + 1, False)])
def test_what_just_fits_stays_whole(room: int, is_whole: bool) -> None:
    assert (fit(TEXT, "#", room, len) == f"#\n{TEXT}") is is_whole


@pytest.mark.parametrize("room", range(80, 402, 7))
def test_of_a_text_that_is_too_long_as_much_as_fits_is_kept(room: int) -> None:
    fitted = fit(TEXT, "HEAD", room, len)
    assert len(fitted) <= room
    head, before, mark, after = fitted.split("\n")
    assert head == "HEAD"
    assert TEXT.startswith(before) and TEXT.endswith(after)
    cut = CUT.fullmatch(mark)
    assert cut and int(cut[1]) == len(TEXT) - len(before) - len(after)
    # One character more would not have fitted.
    kept = len(before) + len(after)
    assert len(after) == kept // 3
    assert len(fitted) - len(cut[1]) + len(str(int(cut[1]) - 1)) + 1 > room


def test_of_a_text_that_is_hardly_too_long_one_character_goes() -> None:
    """The mark counts nothing here, so that the last step of the search can be seen."""

    def count(text: str) -> int:
        return len(CUT.sub("", text).replace("\n", ""))

    assert CUT.search(fit(TEXT, "#", len(TEXT), count))
    assert "[… 1 characters" in fit(TEXT, "#", len(TEXT), count)


@pytest.mark.parametrize(("room", "is_kept"), [(40, True), (39, False)])
def test_where_less_than_forty_characters_would_be_left_nothing_is(room: int, is_kept: bool) -> None:
    def count(text: str) -> int:
        return len(CUT.sub("", text).replace("\n", ""))

    assert bool(fit(TEXT, "", room, count)) is is_kept
