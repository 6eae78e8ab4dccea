from django.db import migrations

# Without it PostgreSQL takes any bound on the sum to hold for a third of all rows, and walks over a million of them.
_ADD = """CREATE STATISTICS rollout_all_tokens ON ((input_tokens)::bigint + output_tokens) FROM rollouts_rollout"""
_REMOVE = "DROP STATISTICS rollout_all_tokens"


def add(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(_ADD)


def remove(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(_REMOVE)


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0019_kept_figures")]

    operations = [migrations.RunPython(add, remove)]
