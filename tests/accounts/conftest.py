import pytest


@pytest.fixture(autouse=True)
def _cheap_password_hashes(settings):
    """Hundreds of tries at a password would take minutes with the real, deliberately slow hash."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
