from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0006_retried_calls'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='collection',
            name='collection_state_is_known',
        ),
        migrations.AddField(
            model_name='collection',
            name='pause_on_notice',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='rollout',
            name='notices',
            field=models.CharField(blank=True, default='', max_length=120),
        ),
        migrations.AddIndex(
            model_name='rollout',
            index=models.Index(condition=models.Q(('notices', ''), _negated=True), fields=['collection', 'id'], name='rollout_notices'),
        ),
        migrations.AddConstraint(
            model_name='collection',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['planning', 'running', 'paused', 'completed', 'cancelled']), ('pause_reason__in', ['', 'asked', 'max_seconds', 'max_tokens', 'max_cost', 'quota', 'notice'])), name='collection_state_is_known'),
        ),
    ]
