from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tasks', '0007_same_rows'),
    ]

    operations = [
        migrations.AddField(
            model_name='deletion',
            name='failing_since',
            field=models.DateTimeField(blank=True, help_text='When transient errors began to interrupt it; null after progress', null=True),
        ),
        migrations.AddField(
            model_name='deletion',
            name='retry_at',
            field=models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True),
        ),
        migrations.AddField(
            model_name='upload',
            name='failing_since',
            field=models.DateTimeField(blank=True, help_text='When transient errors began to interrupt it; null after progress', null=True),
        ),
        migrations.AddField(
            model_name='upload',
            name='retry_at',
            field=models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True),
        ),
    ]
