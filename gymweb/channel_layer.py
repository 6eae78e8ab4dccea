"""The pub/sub channel layer of channels-redis, made robust against Redis outages.

It broadcasts: every worker listens on the same channel. A listener that was connected once reconnects automatically.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from channels_redis.pubsub import RedisPubSubChannelLayer, RedisPubSubLoopLayer, RedisSingleShardConnection
from channels_redis.utils import _wrap_close, decode_hosts
from redis.exceptions import RedisError

from apps.accounts.outage_log import LAYER

ANSWER_SECONDS = 2.0
"""Time limit of Redis requests, in seconds. The sockets have none, because a subscription may be silent for days."""


class LayerUnavailable(ConnectionError):
    """Raised if Redis does not respond. The message is lost and may be sent again."""


class PubSubLayer(RedisPubSubChannelLayer):
    def _get_layer(self) -> "LoopLayer":
        loop = asyncio.get_running_loop()
        if loop not in self._layers:
            self._layers[loop] = LoopLayer(*self._args, **self._kwargs, channel_layer=self)
            _wrap_close(self, loop)
        layer: LoopLayer = self._layers[loop]
        return layer


class LoopLayer(RedisPubSubLoopLayer):
    """The layer of one event loop. Every method raises LayerUnavailable quickly if Redis does not respond."""

    def __init__(self, *, hosts: Any, **kwargs: Any) -> None:
        super().__init__(hosts=hosts, **kwargs)
        self._shards = [ShardConnection(host, self) for host in decode_hosts(hosts)]

    async def _subscribe_to_channel(self, channel: str) -> None:
        """Subscribe. If that fails, forget the channel: the base class would never try again."""
        try:
            async with _answering():
                await super()._subscribe_to_channel(channel)
        except BaseException:
            self.channels.pop(channel, None)
            raise

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        async with _answering():
            await super().send(channel, message)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        async with _answering():
            await super().group_send(group, message)

    async def group_add(self, group: str, channel: str) -> None:
        async with _answering():
            await super().group_add(group, channel)

    async def group_discard(self, group: str, channel: str) -> None:
        async with _answering():
            await super().group_discard(group, channel)


class ShardConnection(RedisSingleShardConnection):
    def _receive_message(self, message: dict[str, Any] | None) -> None:
        """Record that Redis works. Called after each receive, with None if there was no message."""
        LAYER.works()
        super()._receive_message(message)


@asynccontextmanager
async def _answering() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
        LAYER.works()
    except TimeoutError:
        raise LayerUnavailable(f"Redis did not answer within {ANSWER_SECONDS:g} s.") from None
    except (RedisError, OSError) as problem:
        raise LayerUnavailable(f"Redis cannot be reached: {problem}") from None
