from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Count
from django.db.models.functions import Lower


def refuse_equal_names(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Raise ValueError if user names differ only by case. Only the operator knows which account to rename."""
    users = apps.get_model("accounts", "User").objects.using(schema_editor.connection.alias)
    lowered = users.annotate(lowered=Lower("username"))
    repeated = lowered.values("lowered").annotate(users=Count("pk")).filter(users__gt=1).values("lowered")
    names = sorted(lowered.filter(lowered__in=repeated).values_list("username", flat=True), key=str.lower)
    if names:
        message = (
            f"These user names differ only by case: {', '.join(names)}. Rename all but one of each, for example: "
            f"UPDATE accounts_user SET username = '{names[0]}-2' WHERE username = '{names[0]}'; "
            "Then migrate again."
        )
        raise ValueError(message)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_sign_in_methods")]

    operations = [
        migrations.RunPython(refuse_equal_names, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.UniqueConstraint(Lower("username"), name="user_name_once_in_any_case"),
        ),
        migrations.AddField(
            model_name="signinlink",
            name="created_by",
            field=models.ForeignKey(
                null=True, on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
    ]
