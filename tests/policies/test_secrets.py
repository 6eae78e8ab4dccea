"""Keys at rest."""

import pytest

from apps.gym.errors import PolicyError
from apps.policies.secrets import SecretUnreadable, decrypt_secret, encrypt_secret, hint_of


def test_a_secret_comes_back_and_is_not_in_its_stored_form():
    stored = encrypt_secret("sk-secret-ä")
    assert decrypt_secret(stored) == "sk-secret-ä"
    assert "secret" not in stored
    assert encrypt_secret("sk-secret-ä") != stored


def test_a_secret_stored_under_another_secret_key_says_what_to_do(settings):
    stored = encrypt_secret("sk-secret")
    settings.SECRET_KEY = "another-secret-key-of-forty-characters-!"
    with pytest.raises(SecretUnreadable, match=r"GYMWEB_SECRET_KEY .* Enter the key again") as caught:
        decrypt_secret(stored)
    assert isinstance(caught.value, PolicyError)


@pytest.mark.parametrize("damaged", ["", "x", "gAAAA", "ä"])
def test_a_damaged_secret_is_unreadable(damaged):
    with pytest.raises(SecretUnreadable):
        decrypt_secret(damaged)


@pytest.mark.parametrize(
    ("secret", "hint"), [("", ""), ("short", "…"), ("sk-1234567", "…"), ("sk-123456789abcd", "…abcd")]
)
def test_a_hint_shows_the_end_of_a_long_key_only(secret, hint):
    assert hint_of(secret) == hint
