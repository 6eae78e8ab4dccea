"""A plain agent exists from the first migration on: no system prompt, no examples, the default limits."""

from django.db import migrations


def create_default_agent(apps, schema_editor):
    apps.get_model("agents", "Agent").objects.using(schema_editor.connection.alias).get_or_create(
        slug="default", defaults={"name": "Default"}
    )


class Migration(migrations.Migration):
    dependencies = [("agents", "0001_initial")]
    # Going back keeps the row: it may have collections by then.
    operations = [migrations.RunPython(create_default_agent, migrations.RunPython.noop, elidable=False)]
