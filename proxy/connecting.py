"""
Make connections to the upstream, and tell the circuit what becomes of them.
"""

import asyncio
import os

import aiohttp
from yarl import URL

from proxy.circuit import Circuit


class Connector(aiohttp.TCPConnector):
    """aiohttp's, whose every connection is counted until it is let go."""

    def __init__(self, circuit: Circuit, *, limit: int, keepalive_timeout: float) -> None:
        super().__init__(limit=limit, keepalive_timeout=keepalive_timeout)
        self._circuit = circuit

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: "list[aiohttp.tracing.Trace]",
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.connector.Connection:
        """A connection of its pool, or a new one."""
        try:
            connection = await super().connect(req, traces, timeout)
        except aiohttp.ClientSSLError:
            # Something is there to talk to.
            self._circuit.reached()
            raise
        except (aiohttp.ClientConnectorError, TimeoutError) as error:
            self._circuit.failed("no answer" if isinstance(error, TimeoutError) else reason_of(error))
            raise
        self._circuit.reached()
        self._circuit.under_way += 1
        connection.add_callback(self._let_go)
        return connection

    def _let_go(self) -> None:
        self._circuit.under_way -= 1


async def try_connection(url: str, timeout_seconds: float) -> None:
    """Make a connection to the server of *url*, and let it go. Raises OSError or TimeoutError."""
    there = URL(url)
    async with asyncio.timeout(timeout_seconds):
        _, writer = await asyncio.open_connection(there.host, there.port)
    writer.close()


def reason_of(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection; aiohttp's own words tell of its settings, and hide "connection refused"."""
    number, said = error.os_error.errno, error.os_error.strerror
    reason = os.strerror(number) if number is not None and number > 0 else said
    return reason[0].lower() + reason[1:] if reason else str(error)
