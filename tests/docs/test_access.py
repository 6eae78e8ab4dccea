"""docs/operate/access.md says of each scope what the table of permissions says."""

import re
from pathlib import Path

from apps.accounts.models import Role, Scope
from apps.accounts.permissions import SCOPE_PERMISSIONS, Permission

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "operate" / "access.md").read_text()


def test_every_scope_is_described_correctly():
    rows = re.findall(r"^\| `([a-z:]+)` \| [^|]+ \| ([a-z_, ]+) \|$", DOCUMENT, re.MULTILINE)
    described = {scope: listed.split(", ") for scope, listed in rows}
    assert described == {
        scope: sorted(permission for permission in SCOPE_PERMISSIONS[scope] if permission is not Permission.PUBLIC)
        for scope in Scope.values
    }


def test_every_role_is_described():
    roles = DOCUMENT.split("| role | may |")[1].split("\n\n")[0]
    assert re.findall(r"^\| ([a-z]+) \|", roles, re.MULTILINE) == Role.values
