"""Commands that web processes send to the capture server of a worker."""

import msgspec

COMMANDS = "/attempts"
"""Start of the paths; `<rollout>/<attempt>/<command>` follows, or OPEN."""
OPEN = "open"


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """The command to begin an attempt. `claimer` is the id of the user; only they may end it."""

    collection: int
    claimer: int
