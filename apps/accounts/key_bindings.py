"""Custom keyboard shortcuts of users. The pages define the commands."""

import re
from typing import Any

from apps.accounts.models import User

MOST_COMMANDS = 300
_COMMAND = re.compile(r"[a-z][a-z0-9.-]{0,59}", re.ASCII)
_KEYS_LENGTH = 30


class KeymapRefused(Exception):
    """Raised if the input is not a map from commands to keys."""


def remap_keys(*, user: User, keymap: Any) -> None:
    """Replace the user's shortcuts. An empty map restores the defaults; an empty key disables a shortcut."""
    if not isinstance(keymap, dict) or len(keymap) > MOST_COMMANDS:
        raise KeymapRefused(f"A keymap must be an object with at most {MOST_COMMANDS} commands.")
    for command, keys in keymap.items():
        if not _COMMAND.fullmatch(command):
            raise KeymapRefused("Commands use lower-case letters, digits, dots and hyphens.")
        if not isinstance(keys, str) or len(keys) > _KEYS_LENGTH or not keys.isprintable():
            raise KeymapRefused(f"The keys of a command have at most {_KEYS_LENGTH} characters.")
    user.keymap = keymap
    user.save(update_fields=["keymap"])
