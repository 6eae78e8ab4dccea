"""The built-in environments exist from the first migration on, so that a fresh installation has something to run."""

from django.db import migrations

# Written out rather than read from the registry: a migration must mean the same for ever.
BUILTINS = [
    {
        "slug": "exact_match",
        "name": "Exact match",
        "description": (
            "No tools. The boxed answer, else the last line, must equal the row's expected_answer after "
            "normalisation."
        ),
    },
    {
        "slug": "calculator",
        "name": "Calculator",
        "description": (
            "One tool, calculator{expression}. The boxed answer, else the last number of the last line, must be the "
            "row's expected_answer."
        ),
    },
]


def create_environments(apps, schema_editor):
    Environment = apps.get_model("environments", "Environment")
    for given in BUILTINS:
        Environment.objects.using(schema_editor.connection.alias).get_or_create(
            slug=given["slug"], defaults={**given, "adapter": "builtin", "builtin": given["slug"]}
        )


class Migration(migrations.Migration):
    dependencies = [("environments", "0001_initial")]
    # Going back keeps the rows: they may have datasets by then.
    operations = [migrations.RunPython(create_environments, migrations.RunPython.noop, elidable=False)]
