from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0003_rechecks'),
    ]

    operations = [
        migrations.AddField(
            model_name='rollout',
            name='ambiguous_path',
            field=models.BooleanField(default=False),
        ),
        migrations.AddIndex(
            model_name='rollout',
            index=models.Index(condition=models.Q(('ambiguous_path', True)), fields=['collection'], name='rollout_ambiguous_path'),
        ),
    ]
