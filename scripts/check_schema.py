"""Fail if docs/openapi.yaml differs from the schema of the code; --write updates it."""

import os
import sys
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.generated_files import keep_current  # noqa: E402 - found by the line above


def generate_schema() -> str:
    """Return the schema as YAML. Exit if drf-spectacular guessed anything or the result is invalid."""
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.renderers import OpenApiYamlRenderer
    from drf_spectacular.validation import validate_schema

    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    if GENERATOR_STATS:
        GENERATOR_STATS.emit_summary()
        sys.exit("The schema has warnings: say with extend_schema what cannot be seen from the code.")
    validate_schema(schema)  # type: ignore[no-untyped-call]
    rendered: bytes = OpenApiYamlRenderer().render(schema, renderer_context={})  # type: ignore[no-untyped-call]
    return rendered.decode()


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gymweb.settings")
    django.setup()
    keep_current(ROOT / "docs" / "openapi.yaml", generate_schema, about=__doc__, remedy="make schema")


if __name__ == "__main__":
    main()
