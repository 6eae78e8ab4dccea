"""Keep the replies of a reward model, so that equal requests need one call."""

import asyncio
import hashlib
from collections import OrderedDict

from apps.gym.wires.protocol import Reply

MAX_REPLIES = 4_096


class KeptReply:
    """The reply to one request, once it is known. Equal requests hold the lock in turn; the first sets the reply."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.lock = asyncio.Lock()


class ReplyCache:
    """The latest MAX_REPLIES replies of one process, on one event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, KeptReply] = OrderedDict()

    def find(self, request: bytes) -> KeptReply:
        key = hashlib.sha256(request).digest()
        kept = self._kept.setdefault(key, KeptReply())
        self._kept.move_to_end(key)
        if len(self._kept) > MAX_REPLIES:
            self._kept.popitem(last=False)
        return kept
