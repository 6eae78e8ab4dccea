"""Live pages: a socket per open collection page, which gets the page's own partial again when rows changed."""

import asyncio
import contextlib
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.template.loader import render_to_string
from prometheus_client import Gauge

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.dashboard.progress import read_progress
from apps.rollouts.announcing import collection_group
from apps.rollouts.models import Collection

MIN_SECONDS_BETWEEN = 0.2
"""At most five patches a second, however many workers announce."""

FORBIDDEN, GONE, LAYER_AWAY = 4403, 4404, 4503

CONNECTIONS = Gauge("gymweb_websocket_connections", "Sockets of open pages that this web process serves")


class CollectionConsumer(AsyncWebsocketConsumer):
    """Sends the progress partial on connecting and after `collection.changed`. What a client sends is ignored."""

    is_counted = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Without a channel layer the socket is closed: the page polls, and asks again until it is back."""
        try:
            await super().__call__(scope, receive, send)
        except ConnectionError:
            await send({"type": "websocket.close", "code": LAYER_AWAY})
        finally:
            if self.is_counted:
                CONNECTIONS.dec()

    async def connect(self) -> None:
        self.collection_id: int = self.scope["url_route"]["kwargs"]["pk"]
        self.patch: asyncio.Task[None] | None = None
        self.is_stale = False
        if not user_may(self.scope.get("user"), Permission.READ):
            await self.close(code=FORBIDDEN)
            return
        # Joined before the first reading, so that no change falls between the two.
        await self.channel_layer.group_add(collection_group(self.collection_id), self.channel_name)
        await self.accept()
        CONNECTIONS.inc()
        self.is_counted = True
        await self._send_progress()

    async def disconnect(self, code: int) -> None:
        if self.patch is not None:
            self.patch.cancel()
        with contextlib.suppress(ConnectionError):
            await self.channel_layer.group_discard(collection_group(self.collection_id), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is asked of a page."""

    async def collection_changed(self, event: dict[str, Any]) -> None:
        self.is_stale = True
        if self.patch is None or self.patch.done():
            self.patch = asyncio.create_task(self._patch())

    async def _patch(self) -> None:
        while self.is_stale:
            await asyncio.sleep(MIN_SECONDS_BETWEEN)
            # Before the reading: what is announced from here on may have missed it and is read once more.
            self.is_stale = False
            await self._send_progress()

    async def _send_progress(self) -> None:
        html = await database_sync_to_async(self._render)()
        if html is None:
            await self.close(code=GONE)
        else:
            await self.send(text_data=html)

    def _render(self) -> str | None:
        """The partial; None once the collection is gone or its reader may not read any more."""
        user = User.objects.filter(pk=self.scope["user"].pk).first()
        collection = (
            Collection.objects.select_related("policy_model", "environment").filter(pk=self.collection_id).first()
        )
        if collection is None or not user_may(user, Permission.READ):
            return None
        return render_to_string("collections/_collection_progress.html", {"progress": read_progress(collection)})
