"""Clients as they are shipped warn of what is theirs; a proxy in the environment must not catch 127.0.0.1."""

import pytest

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Their warnings are no faults of ours."""
    for item in items:
        if "sdks" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
