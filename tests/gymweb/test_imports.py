"""A server imports only packages that it uses: each of these takes 1 to 10 MB of every process."""

import os
import subprocess
import sys

from tests.deadlines import DEADLINE

UNUSED = {
    "OpenSSL",
    "autobahn.wamp.auth",
    "cbor2",
    "click",
    "cryptography",
    "django.test",
    "jwt",
    "openai",
    "psycopg",
    "pygments",
    "requests",
    "segno",
    "urllib3",
}
LOADED = """
import sys
import django
django.setup()
from django.urls import get_resolver
from gymweb.management.commands.serve import _leave_out_unused_imports
from gymweb.migration_state import find_mismatch
get_resolver().url_patterns
_leave_out_unused_imports()
import gymweb.serving, apps.rollouts.engine.worker
find_mismatch()
names = [name for name, module in sys.modules.items() if module]
from drf_spectacular.plumbing import build_mock_request
from rest_framework.views import APIView
assert build_mock_request("GET", "/api/", APIView(), None).path == "/api/"
print(*names)
"""


def test_a_server_on_sqlite_leaves_out_what_it_does_not_use(tmp_path):
    own = {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_VAR": str(tmp_path), "GYMWEB_DATABASE_URL": ""}
    loaded = subprocess.check_output(
        [sys.executable, "-c", LOADED], env={**os.environ, **own}, text=True, timeout=DEADLINE
    )
    names = set(loaded.split())
    assert {"daphne.server", "rest_framework.views", "apps.api.urls"} <= names
    assert UNUSED & names == set()
    assert not [name for name in names if name.startswith("apps.") and ".migrations.0" in name]
