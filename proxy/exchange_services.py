"""What do all exchanges share?"""

from dataclasses import dataclass, field

from proxy.compactor import Compactor
from proxy.config import Config
from proxy.dialects.known import Items
from proxy.metrics import Metrics
from proxy.renamed import Renamed
from proxy.turnstile import Turnstile
from proxy.upstream import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every exchange shares."""

    config: Config
    upstream: Upstream
    compactor: Compactor
    metrics: Metrics
    turnstile: Turnstile
    renamed: Renamed
    items: Items = field(default_factory=Items)
