"""Route calls of external agents past Django."""

from collections.abc import Awaitable, Callable
from typing import Any

PREFIXES = ("/capture/", "/ng-rollout/")
"""The second one is that of NeMo Gym's agents, which know only the host and port of a model server."""

Application = Callable[..., Awaitable[None]]


class CaptureRoutes:
    """Passes requests below PREFIXES to the capture proxy, and others to `application`."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._proxy: Application | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if not scope["path"].startswith(PREFIXES):
            await self._application(scope, receive, send)
            return
        if self._proxy is None:
            # Imported at the first call, because most installations have no external agents.
            from apps.rollouts.serving.capture_proxy import CaptureProxy

            self._proxy = CaptureProxy()
        await self._proxy(scope, receive, send)
