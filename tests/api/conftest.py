import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role
from tests.factories import make_user
from tests.steady_redactor import steady_redactor

__all__ = ["client_of", "steady_redactor"]


def client_of(role: str) -> Client:
    """A program with a key, as opposed to a browser with a session."""
    _, token = create_api_key(user=make_user(role), name="test", scopes=["admin"])
    return Client(headers={"Authorization": f"Bearer {token}"}, enforce_csrf_checks=True)


@pytest.fixture
def engineer(db) -> Client:
    return client_of(Role.ENGINEER)


@pytest.fixture
def viewer(db) -> Client:
    return client_of(Role.VIEWER)


@pytest.fixture(autouse=True)
def _files_of_its_own(settings, tmp_path):
    settings.UPLOADS_DIR = tmp_path / "uploads"
    settings.EXPORTS_DIR = tmp_path / "exports"
