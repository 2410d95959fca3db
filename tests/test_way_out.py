"""By which proxy of the environment an upstream is reached."""

import pytest

from proxy.way_out import proxy_for

WAY = "http://gate:3128"
REMOTE = "https://api.example.org/v1"
LEFT_OUT = {"https_proxy": WAY}


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        pytest.param(REMOTE, {"https_proxy": WAY}, WAY, id="a remote one"),
        pytest.param(REMOTE, {"HTTPS_PROXY": WAY}, WAY, id="in capitals"),
        pytest.param(REMOTE, {"ALL_PROXY": WAY}, WAY, id="for all schemes"),
        pytest.param(REMOTE, {"https_proxy": WAY, "HTTPS_PROXY": "http://x"}, WAY, id="small letters win"),
        pytest.param(REMOTE, {"https_proxy": "gate:3128"}, WAY, id="without a scheme"),
        pytest.param(REMOTE, {"http_proxy": WAY}, None, id="for another scheme"),
        pytest.param(REMOTE, {}, None, id="none is named"),
        pytest.param(REMOTE, {"https_proxy": ""}, None, id="an empty one is none"),
        pytest.param(REMOTE, {"all_proxy": "socks5://gate:1080"}, None, id="SOCKS is not spoken"),
        pytest.param(REMOTE, LEFT_OUT | {"no_proxy": "*"}, None, id="none for anybody"),
        pytest.param(REMOTE, LEFT_OUT | {"NO_PROXY": "x, example.org"}, None, id="left out by domain"),
        pytest.param(REMOTE, LEFT_OUT | {"no_proxy": ".example.org"}, None, id="with a dot"),
        pytest.param(REMOTE, LEFT_OUT | {"no_proxy": "ample.org"}, WAY, id="half a name is no domain"),
        pytest.param(
            "https://api.example.org:8443", LEFT_OUT | {"no_proxy": "api.example.org:8443"}, None,
            id="left out by port",
        ),
        pytest.param("http://127.0.0.1:8080", {"http_proxy": WAY}, None, id="this machine"),
        pytest.param("http://localhost:8080", {"http_proxy": WAY}, None, id="this machine by name"),
        pytest.param("http://[::1]:8080", {"http_proxy": WAY}, None, id="this machine in IPv6"),
        pytest.param("http://192.168.1.7", {"http_proxy": WAY}, None, id="a private address"),
        pytest.param("http://[fd00::7]", {"http_proxy": WAY}, None, id="a private address in IPv6"),
        pytest.param("http://llama:8080", {"http_proxy": WAY}, None, id="a name without a dot"),
        pytest.param("http://box.local", {"http_proxy": WAY}, None, id="a name of one's own network"),
        pytest.param("http://8.8.8.8", {"http_proxy": WAY}, WAY, id="a public address"),
        pytest.param("http://[oops", {"http_proxy": WAY}, None, id="no URL"),
        pytest.param("", {"http_proxy": WAY}, None, id="nothing"),
    ],
)  # fmt: skip
def test_the_way(url: str, environ: dict[str, str], expected: str | None) -> None:
    assert proxy_for(url, environ) == expected
