"""Which headers pass."""

import pytest

from proxy import headers as hd


def test_the_names_in_connection_go_with_it_in_both_directions() -> None:
    sent = [
        (b"Connection", b"X-A, keep-alive"),
        (b"connection", b" x-b"),
        (b"X-A", b"1"),
        (b"X-B", b"2"),
        (b"X-C", b"3"),
    ]
    assert hd.for_upstream(sent) == [("x-c", "3")]
    assert hd.for_client(sent) == [(b"x-c", b"3")]


def test_repeats_and_their_order_are_kept() -> None:
    sent = [(b"X-A", b"1"), (b"X-B", b"2"), (b"x-a", b"3")]
    assert hd.for_upstream(sent) == [("x-a", "1"), ("x-b", "2"), ("x-a", "3")]


def test_a_request_of_our_own_has_the_clients_credentials_and_nothing_about_its_body() -> None:
    sent = [
        (b"Authorization", b"Bearer k"),
        (b"Content-Type", b"application/json"),
        (b"Content-Encoding", b"gzip"),
        (b"Accept", b"text/event-stream"),
        (b"Accept-Encoding", b"br"),
        (b"X-Org", b"o"),
        (b"X-Compaction", b"off"),
    ]
    assert hd.for_own_request(sent) == (("authorization", "Bearer k"), ("x-org", "o"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(b"plain", "plain", id="ASCII"),
        pytest.param("café".encode(), "café", id="UTF-8, which is written as UTF-8 again"),
        pytest.param("café".encode("latin-1"), "café", id="Latin-1"),
        pytest.param(b"\xff\xfe", "ÿþ", id="any bytes"),
    ],
)
def test_a_value_is_read_as(value: bytes, text: str) -> None:
    assert hd.for_upstream([(b"x", value)]) == [("x", text)]


def test_callers_are_told_apart_by_each_credential() -> None:
    names = (b"Authorization", b"X-Api-Key", b"Api-Key")
    callers = {hd.credentials([(name, b"k")]) for name in names} | {hd.credentials([(b"X-Other", b"k")])}
    assert len(callers) == 4


def test_values_of_a_repeated_header_are_joined() -> None:
    sent = [(b"Accept", b"a"), (b"accept", b"b")]
    assert hd.value_of(sent, b"accept") == "a, b"
    assert hd.value_of(sent, b"missing") == ""
