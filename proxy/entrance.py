"""
Stand before every route: let no foreign page in, and tell a browser which pages may read.

Who holds which key is asked further inside, where it is known what the key is for.
"""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.errors import ProxyError
from proxy.origins import Origins, Page

Refuse = Callable[[Scope, Receive, Send, ProxyError], Awaitable[None]]


class Entrance:
    """
    ASGI middleware.

    Args:
        app: What it stands before.
        origins: Who is let in now.
        refuse: Answers in the wire format of the endpoint.
    """

    def __init__(self, app: ASGIApp, origins: Callable[[], Origins], refuse: Refuse) -> None:
        self._app = app
        self._origins = origins
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            page = self._origins().page_of(scope["method"], scope["headers"])
        except ProxyError as error:
            await self._refuse(scope, receive, send, error)
            return
        if page is None:
            await self._app(scope, receive, send)
        elif page.preflight is not None:
            headers = [*page.allowed(()), *page.preflight]
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body"})
        else:
            await self._app(scope, receive, _allowing(page, send))


def _allowing(page: Page, send: Send) -> Send:
    async def allowed(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": page.allowed(message.get("headers", ()))}
        await send(message)

    return allowed
