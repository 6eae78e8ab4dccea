"""A margin is of rewards: pairs that people chose have none. Before, it was what rewards said of them, or 0."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def forget_margins(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("exports", "PreferencePair").objects.filter(source="verdict").update(margin=None)


def fill_margins(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("exports", "PreferencePair").objects.filter(margin=None).update(margin=0.0)


class Migration(migrations.Migration):
    dependencies = [("exports", "0007_exports_without_rows")]

    operations = [
        migrations.RemoveConstraint(model_name="preferencepair", name="pair_by_reward_has_a_margin"),
        migrations.AlterField(
            model_name="preferencepair",
            name="margin",
            field=models.FloatField(
                null=True, blank=True, help_text="chosen − rejected, of the rewards that counted; empty where people chose"
            ),
        ),
        migrations.RunPython(forget_margins, fill_margins),
        migrations.AddConstraint(
            model_name="preferencepair",
            constraint=models.CheckConstraint(
                condition=models.Q(source="verdict", margin__isnull=True)
                | (~models.Q(source="verdict") & models.Q(margin__isnull=False, margin__gt=0)),
                name="pair_margin_is_of_rewards",
            ),
        ),
    ]
