from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('exports', '0009_who_judged_a_pair'),
    ]

    operations = [
        migrations.AddField(
            model_name='export',
            name='failing_since',
            field=models.DateTimeField(blank=True, help_text='When transient errors began to interrupt it; null after progress', null=True),
        ),
        migrations.AddField(
            model_name='export',
            name='retry_at',
            field=models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True),
        ),
        migrations.AddField(
            model_name='pairset',
            name='failing_since',
            field=models.DateTimeField(blank=True, help_text='When transient errors began to interrupt it; null after progress', null=True),
        ),
        migrations.AddField(
            model_name='pairset',
            name='retry_at',
            field=models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True),
        ),
    ]
