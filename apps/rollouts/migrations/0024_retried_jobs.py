from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0023_kept_breakdowns'),
    ]

    operations = [
        migrations.AddField(
            model_name='collectiondeletion',
            name='failing_since',
            field=models.DateTimeField(blank=True, help_text='When transient errors began to interrupt it; null after progress', null=True),
        ),
        migrations.AddField(
            model_name='collectiondeletion',
            name='retry_at',
            field=models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True),
        ),
        migrations.AddField(
            model_name='reverification',
            name='failing_since',
            field=models.DateTimeField(blank=True, help_text='When transient errors began to interrupt it; null after progress', null=True),
        ),
        migrations.AddField(
            model_name='reverification',
            name='retry_at',
            field=models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True),
        ),
    ]
