"""Counters by subject and period in the database, shared by all web processes."""

import hashlib
import secrets
import time
from contextlib import suppress
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple

from django.db import connection

from apps.accounts.models import Tally

SWEEP_ONE_IN = 200
_ADD = """
INSERT INTO accounts_tally (key, count, ends_at) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET
    count = CASE WHEN accounts_tally.ends_at > %s THEN accounts_tally.count + excluded.count ELSE excluded.count END,
    ends_at = CASE WHEN accounts_tally.ends_at > %s THEN accounts_tally.ends_at ELSE excluded.ends_at END
RETURNING count, ends_at
"""


class Counted(NamedTuple):
    number: int
    ends_at: int  # seconds since 1970


def add(key: str, by: int = 1, *, seconds: int) -> Counted:
    """Add to a counter and return it.

    A period starts with the first event of a key and lasts `seconds`.
    """
    now = int(time.time())
    with connection.cursor() as cursor:
        cursor.execute(_ADD, [_hash(key), by, now + seconds, now, now])
        counted = Counted(*cursor.fetchone())
    if secrets.randbelow(SWEEP_ONE_IN) == 0:
        sweep()
    return counted


def forget(key: str) -> None:
    Tally.objects.filter(pk=_hash(key)).delete()


def sweep() -> int:
    """Delete expired counters. Return their number."""
    return Tally.objects.filter(ends_at__lt=int(time.time())).delete()[0]


def network_of(address: str) -> str:
    """Return the network that an address is counted under.

    This is the address itself, or the /64 network of an IPv6 address, which usually belongs to a single client.
    """
    with suppress(ValueError):
        parsed = ip_address(address)
        if isinstance(parsed, IPv6Address):
            return str(parsed.ipv4_mapped or ip_network((int(parsed) >> 64 << 64, 64)))
    return address


def _hash(key: str) -> str:
    # Hashed, because some users type their password into the name field.
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()
