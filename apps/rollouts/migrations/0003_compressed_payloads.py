from django.db import migrations

import apps.rollouts.trace_payloads


def store_bytes(registry, schema_editor):
    """Let PostgreSQL store bytes. A text column of SQLite can store them too, so no table is copied there."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            "ALTER TABLE rollouts_traceevent ALTER COLUMN payload TYPE bytea USING convert_to(payload, 'UTF8')"
        )


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0002_figure_blocks'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(store_bytes)],
            state_operations=[
                migrations.AlterField(
                    model_name='traceevent',
                    name='payload',
                    field=apps.rollouts.trace_payloads.PayloadField(),
                ),
            ],
        ),
    ]
