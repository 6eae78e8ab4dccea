import apps.accounts.models
from django.db import migrations, models


def everything():
    """Keys that are in use go on doing what they did: all that their owner's role may."""
    return ["admin"]


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='apikey',
            name='last_used_address',
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AddField(
            model_name='apikey',
            name='scopes',
            field=models.JSONField(default=everything, validators=[apps.accounts.models.known_scopes]),
            preserve_default=False,
        ),
    ]
