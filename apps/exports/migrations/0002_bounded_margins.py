"""Margins of pairs whose rewards were beyond ±1e100, which earlier versions stored; now none is above 2e100."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

MOST = 2e100


def bound_margins(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    pairs = apps.get_model("exports", "PreferencePair")._default_manager.using(schema_editor.connection.alias)
    pairs.filter(margin__gt=MOST).update(margin=MOST)


class Migration(migrations.Migration):
    dependencies = [("exports", "0001_initial"), ("rollouts", "0012_bounded_rewards")]

    operations = [migrations.RunPython(bound_margins, migrations.RunPython.noop)]
