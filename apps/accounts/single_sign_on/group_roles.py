"""Find the role of a user in the groups that the identity provider names."""

from typing import Any

from django.conf import settings

from apps.accounts.models import Role


def find_role(claims: dict[str, Any]) -> Role | None:
    """Return the role of the first group in GYMWEB_OIDC_ROLES that the user has, or None."""
    groups = groups_of(claims)
    return next((Role(role) for group, role in settings.OIDC.roles.items() if group in groups and role in Role), None)


def groups_of(claims: dict[str, Any]) -> list[str]:
    """Return the groups in GYMWEB_OIDC_GROUPS_CLAIM. Dots lead into objects, as in `realm_access.roles`."""
    name = settings.OIDC.groups_claim
    found: Any = claims
    if name in claims:
        found = claims[name]
    else:
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    groups = [found] if isinstance(found, str) else found
    return [one for one in groups if isinstance(one, str)] if isinstance(groups, list) else []
