"""Fail if docs/openapi.yaml differs from the schema of the code; --write updates it."""

import argparse
import difflib
import os
import sys
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parent.parent
SCHEMA_PATH = ROOT / "docs" / "openapi.yaml"


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/openapi.yaml instead of comparing with it")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gymweb.settings")
    django.setup()

    schema = generate_schema()
    if arguments.write:
        SCHEMA_PATH.write_text(schema)
        print(f"wrote {SCHEMA_PATH.relative_to(ROOT)}")
        return
    written = SCHEMA_PATH.read_text() if SCHEMA_PATH.exists() else ""
    if schema == written:
        return
    difference = difflib.unified_diff(written.splitlines(), schema.splitlines(), "docs/openapi.yaml", "the code", n=2)
    print("\n".join(list(difference)[:60]))
    sys.exit("docs/openapi.yaml is not what the code has. If the change is meant, run: make schema")


if __name__ == "__main__":
    main()
