"""What the demo says of a session without the proxy follows from the server's counts."""

import pytest

from proxy.demo.alternatives import died_at, processed_by_sliding_cut


@pytest.mark.parametrize(
    ("whole", "turn"),
    [
        pytest.param([50, 99], None, id="just under the window"),
        pytest.param([50, 100, 150], 2, id="llama.cpp refuses a prompt of the window's size"),
    ],
)
def test_died_at(whole: list[int], turn: int | None) -> None:
    assert died_at(whole, window=100) == turn


@pytest.mark.parametrize(
    ("whole", "processed"),
    [
        pytest.param([20], 20, id="one turn"),
        pytest.param([20, 40, 60], 60, id="while it fits only what is new"),
        # At 120 the first turn goes (20), and the other 80 are processed again; at 140 the
        # second (60), and the other 40.
        pytest.param([20, 40, 100, 120, 140], 100 + 80 + 40, id="a cut processes all behind the brief again"),
        pytest.param([20, 300], 20, id="a turn larger than the window is dropped as well"),
    ],
)
def test_processed_by_sliding_cut(whole: list[int], processed: int) -> None:
    assert processed_by_sliding_cut(whole, budget=100) == processed
