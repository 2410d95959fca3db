"""Which path is whose, and what the application is made of."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from proxy.app_answering import Answering
from proxy.app_process import Proxy
from proxy.app_straight import Endpoint, Everything, Straight
from proxy.config import Config
from proxy.entrance import Entrance


def make_app(config: Config, environ: Mapping[str, str] | None = None) -> Starlette:
    """
    The ASGI application. Its lifespan opens the store and closes everything.

    Raises:
        ConfigError: If there is no usable upstream URL, or what encryption needs is not installed.
    """
    proxy = Proxy(config, os.environ if environ is None else environ)
    answering = Answering(proxy)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await proxy.open()
        try:
            yield
        finally:
            await proxy.close()

    routes = [
        Route("/livez", proxy.health.livez),
        Route("/readyz", answering.readyz),
        Route("/upstream/metrics", Endpoint(answering.upstream_metrics)),
    ]
    if config.metrics.enabled:
        routes.append(Route("/metrics", answering.for_admins(proxy.health.metrics_page), methods=["GET"]))
    if config.status.enabled:
        pages = proxy.status.pages()
        routes += [Route(path, answering.for_admins(page), methods=["GET"]) for path, page in pages.items()]
    span: Callable[[Starlette], AbstractAsyncContextManager[None]] = lifespan
    entrance = Middleware(Entrance, origins=lambda: proxy.origins, refuse=answering.refuse)
    app = Straight(
        routes=[*routes, Everything(answering.handle)],
        rest=answering.handle,
        entrance=entrance,
        lifespan=span,
    )
    app.state.proxy = proxy
    return app
