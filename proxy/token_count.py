"""
Answer a client that asks how large its request would be: for the view that would be sent.

Clients decide by it whether to summarise by themselves, so it must not be the size of
the whole history. Nothing is compacted for it.
"""

from proxy import headers as hd
from proxy.asked import Asked
from proxy.client import Client
from proxy.dialects.base import Dialect
from proxy.exchange_services import Services
from proxy.relay import answer_headers
from proxy.understanding import understand

# What servers say that do not have the endpoint.
_ABSENT = frozenset((404, 405, 501))


async def count_tokens(services: Services, dialect: Dialect, client: Client, raw: bytes, url: str) -> None:
    """
    Relay the upstream's count of the view; where it cannot count, answer with our own.

    Raises:
        ProxyError: As `Exchange.run` does.
    """
    asked = understand(raw, url, client, dialect, services.config, items=services.items)
    body, tokens = raw, 0
    changed = False
    if isinstance(asked, Asked):
        prepared = await services.compactor.shown(asked)
        tokens = prepared.tokens
        changed = prepared.body is not None or asked.plain is not None
        body = next(one for one in (prepared.body, asked.plain, raw) if one is not None)
    headers = hd.for_upstream(client.headers, drop=hd.OF_THE_BYTES if changed else ())
    response = await services.upstream.send("POST", url, headers=headers, body=body)
    try:
        if response.status in _ABSENT and tokens:
            await client.whole(200, dialect.count_answer(tokens))
            return
        await client.head(response.status, answer_headers(response))
        async for chunk in response.chunks():
            await client.chunk(chunk)
        await client.end()
    finally:
        await response.close()
