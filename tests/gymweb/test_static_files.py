"""Collected modules of the pages import each other under the names that they are served with."""

import json
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import override_settings

SCRIPTS = Path(settings.BASE_DIR, "static", "js")
IMPORT = re.compile(r"""(?:\bfrom|\bimport\(?)\s*["'](\./[^"']+)["']""")


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("static")
    storages = {**settings.STORAGES, "staticfiles": {"BACKEND": "gymweb.static_files.ModuleStaticFilesStorage"}}
    with override_settings(STATIC_ROOT=root, STORAGES=storages):
        call_command("collectstatic", interactive=False, verbosity=0)
    return root


def test_collected_modules_import_the_hashed_names(collected: Path):
    hashed = json.loads((collected / "staticfiles.json").read_text())["paths"]
    imported = 0
    for source in SCRIPTS.glob("*.js"):
        text = (collected / hashed[f"js/{source.name}"]).read_text()
        before, after = IMPORT.findall(source.read_text()), IMPORT.findall(text)
        assert after == [f"./{Path(hashed[f'js/{name[2:]}']).name}" for name in before], source.name
        imported += len(after)
    assert imported > 20


def test_each_import_names_something_that_its_module_exports():
    exports = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)
    named = re.compile(r"""^import \{([^}]+)\} from "\./([^"]+)";""", re.MULTILINE)
    missing = [
        f"{source.name}: {name.strip()} of {module}"
        for source in SCRIPTS.glob("*.js")
        for names, module in named.findall(source.read_text())
        for name in names.split(",")
        if name.strip() not in exports.findall((SCRIPTS / module).read_text())
    ]
    assert missing == []
