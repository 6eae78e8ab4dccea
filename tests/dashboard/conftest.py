import pytest
from django.test import Client

from apps.accounts.models import Role, User
from tests.factories import make_user
from tests.steady_redactor import steady_redactor

__all__ = ["steady_redactor"]


@pytest.fixture
def engineer(db: None) -> User:
    return make_user(Role.ENGINEER, username="erika")


@pytest.fixture
def admin(db: None) -> User:
    return make_user(Role.ADMIN, username="admina")


@pytest.fixture
def pages(engineer: User) -> Client:
    """A browser in which an engineer is signed in."""
    client = Client()
    client.force_login(engineer)
    return client


@pytest.fixture
def admin_pages(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def viewer_pages(db: None) -> Client:
    client = Client()
    client.force_login(make_user(Role.VIEWER, username="vera"))
    return client
