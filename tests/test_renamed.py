"""The upstream is asked by its own id for what a client knows by the announced one."""

from proxy.renamed import Renamed

MINE, ANOTHERS = ("Bearer sk-one",), ("Bearer sk-two",)
OURS = "resp_waited_" + "0a" * 16


def test_an_announced_id_is_put_back_wherever_it_stands() -> None:
    renamed = Renamed()
    renamed.remember(MINE, OURS, "resp_1")
    body = f'{{"previous_response_id": "{OURS}", "t": 1.0}}'.encode()
    assert renamed.restored(MINE, body) == b'{"previous_response_id": "resp_1", "t": 1.0}'
    assert (
        renamed.restored(MINE, f"/v1/responses/{OURS}/input_items".encode())
        == b"/v1/responses/resp_1/input_items"
    )


def test_what_names_none_of_ours_is_as_it_was() -> None:
    renamed = Renamed()
    renamed.remember(MINE, OURS, "resp_1")
    other = f'"resp_waited_{"0b" * 16}" resp_1 resp_waited_ \xff'.encode("latin-1")
    assert renamed.restored(MINE, other) == other


def test_the_oldest_are_forgotten() -> None:
    renamed = Renamed(most=2)
    ids = [f"resp_waited_{i:032x}" for i in range(3)]
    for i, announced in enumerate(ids):
        renamed.remember(MINE, announced, f"resp_{i}")
    assert [renamed.restored(MINE, i.encode()) for i in ids] == [ids[0].encode(), b"resp_1", b"resp_2"]


def test_what_was_announced_to_one_caller_is_nothing_to_another() -> None:
    renamed = Renamed()
    renamed.remember(MINE, OURS, "resp_1")
    assert renamed.restored(ANOTHERS, OURS.encode()) == OURS.encode()
    assert renamed.restored(MINE, OURS.encode()) == b"resp_1"
