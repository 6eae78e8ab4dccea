"""Signing in and fixed query counts for tests of pages."""

from collections.abc import Callable

from asgiref.sync import async_to_sync
from django.db import connection
from django.http import StreamingHttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Role
from tests.factories import make_user


def signed_in(role: str = Role.ENGINEER) -> Client:
    client = Client()
    client.force_login(make_user(role))
    return client


def queries_with_one_and_three(url: Callable[[], str], add: Callable[[], object]) -> tuple[int, int]:
    """How many queries the page takes with one row, and with three."""
    client = signed_in()
    counts = []
    for more in (1, 2):
        for _ in range(more):
            add()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert client.get(url()).status_code == 200
        counts.append(len(queries))
    return counts[0], counts[1]


def squeezed(html: str) -> str:
    """With every run of white space as one space, as a browser shows it."""
    return " ".join(html.split())


def streamed(reply: StreamingHttpResponse) -> str:
    """All that an answer says that is made while it is read."""

    async def gather() -> bytes:
        return b"".join([piece async for piece in reply])

    return async_to_sync(gather)().decode()
