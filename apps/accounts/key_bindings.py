"""Keys of one's own: which key does what, where it is not the usual one. What commands there are the pages know."""

import re
from typing import Any

from apps.accounts.models import User

MOST_COMMANDS = 300
_COMMAND = re.compile(r"[a-z][a-z0-9.-]{0,59}", re.ASCII)
_KEYS_LENGTH = 30


class KeymapRefused(Exception):
    """What was sent is no map from commands to keys."""


def remap_keys(*, user: User, keymap: Any) -> None:
    """In place of all that the user had chosen before: an empty map restores the usual keys, an empty key is none."""
    if not isinstance(keymap, dict) or len(keymap) > MOST_COMMANDS:
        raise KeymapRefused(f"A keymap is an object with at most {MOST_COMMANDS} commands.")
    for command, keys in keymap.items():
        if not _COMMAND.fullmatch(command):
            raise KeymapRefused("A command is written in small letters, digits, points and hyphens.")
        if not isinstance(keys, str) or len(keys) > _KEYS_LENGTH or not keys.isprintable():
            raise KeymapRefused(f"The keys of a command are at most {_KEYS_LENGTH} characters.")
    user.keymap = keymap
    user.save(update_fields=["keymap"])
