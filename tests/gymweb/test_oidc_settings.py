"""The settings of single sign-on are read strictly, and the secret is shown nowhere."""

import pytest

from gymweb.environment_variables import Environment, SettingRefused
from gymweb.oidc_settings import read_oidc

ISSUER = "https://login.example.org/realms/team"


def given(**values):
    return read_oidc(Environment({f"GYMWEB_OIDC_{name.upper()}": value for name, value in values.items()}))


def test_without_an_issuer_it_is_off():
    found = given()
    assert (found.provider_id, found.allauth_providers["openid_connect"]["APPS"]) == ("", [])
    assert (found.groups_claim, found.scopes, found.session_hours) == ("groups", ["openid", "profile", "email"], 12)


def test_settings_become_an_application_with_pkce():
    found = given(issuer=ISSUER, client_id="gymweb", client_secret="hidden-secret", roles='{"a": "admin"}')
    [application] = found.allauth_providers["openid_connect"]["APPS"]
    assert application["settings"]["oauth_pkce_enabled"] is True
    assert application["settings"]["server_url"] == f"{ISSUER}/.well-known/openid-configuration"
    assert (application["provider_id"], application["secret"]) == (found.provider_id, "hidden-secret")
    assert "hidden-secret" not in repr(found)


def test_accounts_belong_to_one_issuer():
    one, other = given(issuer=ISSUER), given(issuer=f"{ISSUER}2")
    assert one.provider_id != other.provider_id


@pytest.mark.parametrize(
    "values",
    [
        {"issuer": "login.example.org"},
        {"issuer": "ftp://login.example.org"},
        {"issuer": "https://login.example.org:x"},
        {"issuer": "https://name:password@login.example.org"},
        {"issuer": f"{ISSUER}?a=b"},
        {"roles": "ml-team=engineer"},
        {"roles": '["admin"]'},
        {"roles": '{"a": ["admin"]}'},
        {"session_hours": "0"},
        {"key_days": "-1"},
    ],
)
def test_invalid_values_are_refused_by_name(values):
    with pytest.raises(SettingRefused) as refused:
        given(**values)
    [name] = values
    assert str(refused.value).startswith(f"GYMWEB_OIDC_{name.upper()}")
    assert "password" not in str(refused.value)
