"""The upstream is asked by its own id for what a client knows by the announced one."""

from proxy.renamed import Renamed

OURS = "resp_waited_" + "0a" * 16


def test_an_announced_id_is_put_back_wherever_it_stands() -> None:
    renamed = Renamed()
    renamed.remember(OURS, "resp_1")
    body = f'{{"previous_response_id": "{OURS}", "t": 1.0}}'.encode()
    assert renamed.restored(body) == b'{"previous_response_id": "resp_1", "t": 1.0}'
    assert (
        renamed.restored(f"/v1/responses/{OURS}/input_items".encode()) == b"/v1/responses/resp_1/input_items"
    )


def test_what_names_none_of_ours_is_as_it_was() -> None:
    renamed = Renamed()
    renamed.remember(OURS, "resp_1")
    other = f'"resp_waited_{"0b" * 16}" resp_1 resp_waited_ \xff'.encode("latin-1")
    assert renamed.restored(other) == other


def test_the_oldest_are_forgotten() -> None:
    renamed = Renamed(most=2)
    ids = [f"resp_waited_{i:032x}" for i in range(3)]
    for i, announced in enumerate(ids):
        renamed.remember(announced, f"resp_{i}")
    assert [renamed.restored(i.encode()) for i in ids] == [ids[0].encode(), b"resp_1", b"resp_2"]
