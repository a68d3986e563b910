"""One decision for a pipeline, from a router in this process or from a service."""

from __future__ import annotations

import asyncio
import threading

from prerouter.core.protocols import Router
from prerouter.core.records import Route
from prerouter.serving.client import Client
from prerouter.serving.served import as_served
from prerouter.serving.wire import AskedCase, Routed, routed, to_case


class Chooser:
    """A router in this process is asked by one thread at a time. Where it gives no route, the
    `fallback` is chosen; a service has its own. What either raises is raised."""

    def __init__(self, router: Router | Client, fallback: Route | None = None) -> None:
        self._client = router if isinstance(router, Client) else None
        self._served = None if isinstance(router, Client) else as_served(router, fallback)
        self._lock = threading.Lock()

    def choose(self, case: AskedCase) -> Routed:
        if self._client:
            return self._client.decide(case)[0]
        assert self._served
        asked = to_case(case, "case", self._served.rag, self._served.head_characters)
        with self._lock:
            (decision,) = self._served.router.route([asked])
        return routed(decision, case.case_id, self._served.fallback, self._served.identity)

    async def achoose(self, case: AskedCase) -> Routed:
        """The same without blocking the event loop."""
        if self._client:
            return (await self._client.adecide(case))[0]
        return await asyncio.to_thread(self.choose, case)
