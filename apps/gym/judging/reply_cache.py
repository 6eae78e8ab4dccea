"""Keep the replies of a reward model, so that equal texts need one call."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from apps.gym.calls.time_limits import stopped_clocks
from apps.gym.wires.protocol import Reply

MAX_REPLIES = 4_096


class Turn:
    """The reply to one request, once it is known. Concurrent equal requests take turns."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.lock = asyncio.Lock()


class ReplyCache:
    """The latest MAX_REPLIES replies of one process. Used on one event loop at a time."""

    def __init__(self) -> None:
        self._turns: OrderedDict[bytes, Turn] = OrderedDict()

    @asynccontextmanager
    async def turn(self, request: bytes) -> AsyncIterator[Turn]:
        """Wait until no equal request is in flight. If its reply is None, the caller sets it unless it fails."""
        key = hashlib.sha256(request).digest()
        turn = self._turns.setdefault(key, Turn())
        self._turns.move_to_end(key)
        if len(self._turns) > MAX_REPLIES:
            self._turns.popitem(last=False)
        with stopped_clocks():
            await turn.lock.acquire()
        try:
            yield turn
        finally:
            turn.lock.release()
