"""Let other requests of a web process use a connection while a request waits or sends its response."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connection

Args = ParamSpec("Args")
Result = TypeVar("Result")


def release_connection() -> None:
    """Release the connection of this request. The next query waits for one again.

    Do nothing within a transaction, and outside of web processes with PostgreSQL.
    """
    if getattr(connection, "is_pooled", False):
        close_old_connections()


async def run_query(work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """Run `work` on the thread of the request, and release its connection afterwards."""
    return await sync_to_async(_run)(work, *args, **kwargs)


def _run(work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    try:
        return work(*args, **kwargs)
    finally:
        release_connection()
