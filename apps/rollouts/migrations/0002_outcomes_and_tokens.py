from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='rollout',
            name='masked',
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AddField(
            model_name='rollout',
            name='sampled_tokens',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='rollout',
            name='trainable_tokens',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='rollout',
            name='ambiguous_path',
            field=models.BooleanField(default=False),
        ),
        migrations.AddIndex(
            model_name='rollout',
            index=models.Index(condition=models.Q(('ambiguous_path', True)), fields=['collection'], name='rollout_ambiguous_path'),
        ),
        migrations.AddIndex(
            model_name='rollout',
            index=models.Index(condition=models.Q(('masked', ''), _negated=True), fields=['collection'], name='rollout_masked'),
        ),
        migrations.AddConstraint(
            model_name='rollout',
            constraint=models.CheckConstraint(condition=models.Q(('masked', ''), models.Q(('reward__isnull', True), ('status', 'completed')), _connector='OR'), name='rollout_masked_has_no_reward'),
        ),
    ]
