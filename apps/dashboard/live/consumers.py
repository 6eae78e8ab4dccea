"""Live pages: a WebSocket per open page, notified when rows of its collection change."""

import asyncio
import contextlib
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError
from django.template.loader import render_to_string
from prometheus_client import Gauge

from apps.accounts.models import User
from apps.accounts.outage_log import DATABASE
from apps.accounts.outages import is_outage
from apps.accounts.permissions import Permission, user_may
from apps.accounts.sessions.browser_sessions import is_session_open
from apps.dashboard.live.followed_attempt import Mark, followed_rollouts, read_news
from apps.dashboard.overview.collection_progress import mark_changes
from apps.rollouts.metrics.page_figures import count_running
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.notifications import collection_group

MIN_SECONDS_BETWEEN = 0.2
"""Sends at most five updates a second, however many workers announce changes."""

FORBIDDEN, GONE, UNAVAILABLE = 4403, 4404, 4503

CONNECTIONS = Gauge("gymweb_websocket_connections", "Open page sockets of this web process")


class LiveConsumer(AsyncWebsocketConsumer):
    """Sends the result of `render` on connecting and after `collection.changed`. Ignores messages of clients."""

    is_counted = False
    group = ""
    collection_id: int | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Close the socket if the channel layer is unavailable: the page polls and reconnects later."""
        try:
            await super().__call__(scope, receive, send)
        except ConnectionError:
            await send({"type": "websocket.close", "code": UNAVAILABLE})
        finally:
            if self.is_counted:
                CONNECTIONS.dec()

    def find_collection(self) -> int | None:
        """Return the collection whose changes the page follows, if any."""
        raise NotImplementedError

    def render(self, user: User) -> str | None:
        """Return the partial, empty without news; None if the row was deleted."""
        raise NotImplementedError

    async def connect(self) -> None:
        self.patch: asyncio.Task[None] | None = None
        self.is_stale = False
        self.pk: int = self.scope["url_route"]["kwargs"]["pk"]
        if not user_may(self.scope.get("user"), Permission.READ):
            await self.close(code=FORBIDDEN)
            return
        collection_id = await database_sync_to_async(self.find_collection)()
        if collection_id is not None:
            self.group = collection_group(collection_id)
            # Subscribe before the first read, so that no change is missed in between.
            await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()
        CONNECTIONS.inc()
        self.is_counted = True
        await self._send()

    async def disconnect(self, code: int) -> None:
        if self.patch is not None:
            self.patch.cancel()
        if self.group:
            with contextlib.suppress(ConnectionError):
                await self.channel_layer.group_discard(self.group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Ignore messages of clients."""

    async def collection_changed(self, event: dict[str, Any]) -> None:
        self.is_stale = True
        if self.patch is None or self.patch.done():
            self.patch = asyncio.create_task(self._patch())

    async def _patch(self) -> None:
        while self.is_stale:
            await asyncio.sleep(MIN_SECONDS_BETWEEN)
            # Cleared before reading: a later notification may be missed by this read, so it causes another one.
            self.is_stale = False
            try:
                await self._send()
            except DatabaseError as problem:
                if not is_outage(problem):
                    raise
                DATABASE.failed("live updates", problem)
                await self.close(code=UNAVAILABLE)

    async def _send(self) -> None:
        html = await database_sync_to_async(self._render)()
        if html is None:
            await self.close(code=GONE)
        elif html:
            await self.send(text_data=html)

    def _render(self) -> str | None:
        """Return None also if the user lost permission or changed their password, or if the session has ended."""
        opened_by: User = self.scope["user"]
        if not is_session_open(self.scope["session"].session_key):
            return None
        user = User.objects.filter(pk=opened_by.pk, password=opened_by.password).first()
        if user is None or not user_may(user, Permission.READ):
            return None
        return self.render(user)


class CollectionConsumer(LiveConsumer):
    """Notifies the page of a collection that its figures changed. The page then fetches all of them."""

    def find_collection(self) -> int | None:
        return self.pk

    def render(self, user: User) -> str | None:
        collection = Collection.objects.filter(pk=self.pk).first()
        return None if collection is None else mark_changes(collection, count_running(collection))


class RolloutConsumer(LiveConsumer):
    """Follow the trace of a rollout: events since the mark that the page sends, then new events."""

    def find_collection(self) -> int | None:
        given = parse_qs(self.scope["query_string"].decode(errors="replace")).get("seen", [""])[0]
        self.seen = Mark.parse(given) or Mark("", -1, 0)
        return Rollout.objects.filter(pk=self.pk).values_list("collection_id", flat=True).first()

    def render(self, user: User) -> str | None:
        rollout = followed_rollouts().filter(pk=self.pk).first()
        if rollout is None:
            return None
        parts = read_news(rollout, user, self.seen)
        if parts is None:
            return ""
        self.seen = parts["mark"]
        return render_to_string("rollouts/_rollout_live.html", parts)
