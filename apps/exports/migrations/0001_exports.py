# Not 0001_initial: databases from before the app `pairs` have applied a migration of that name with other tables.
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('pairs', '0001_initial'),
        ('rollouts', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Export',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('failing_since', models.DateTimeField(blank=True, help_text='When transient errors started; null after progress', null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True)),
                ('format', models.CharField(help_text='A slug of apps.gym.exporters.registry', max_length=32)),
                ('encoding', models.CharField(choices=[('jsonl', 'JSON lines'), ('jsonl.gz', 'JSON lines, gzip'), ('parquet', 'Parquet')], default='jsonl', max_length=16)),
                ('filters', models.JSONField(blank=True, default=dict, help_text='e.g. {"min_reward": 0.7}')),
                ('options', models.JSONField(blank=True, default=dict, help_text='Row options, e.g. {"reasoning": "inline"}')),
                ('validation_share', models.FloatField(default=0.0, help_text='Share of the prompts in the validation file')),
                ('split_seed', models.BigIntegerField(default=0)),
                ('state', models.CharField(choices=[('queued', 'queued'), ('writing', 'writing'), ('ready', 'ready'), ('failed', 'failed'), ('cancelled', 'cancelled')], default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0, help_text='Number of claims, used as a fencing token')),
                ('path', models.CharField(blank=True, help_text='Folder or file', max_length=500)),
                ('total', models.PositiveIntegerField(default=0, help_text='Rollouts, pairs or tasks to check')),
                ('considered', models.PositiveIntegerField(default=0, help_text='Number checked so far')),
                ('rows', models.PositiveIntegerField(default=0)),
                ('bytes', models.BigIntegerField(default=0)),
                ('sha256', models.CharField(blank=True, max_length=64)),
                ('manifest', models.JSONField(default=dict)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Last heartbeat; an unresponsive export is queued again')),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='exports', to='rollouts.collection')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='exports', to=settings.AUTH_USER_MODEL)),
                ('pair_set', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='exports', to='pairs.pairset')),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('encoding__in', ['jsonl', 'jsonl.gz', 'parquet']), ('validation_share__gte', 0.0), ('validation_share__lte', 0.5)), name='export_is_possible'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'ready'), _negated=True), models.Q(models.Q(('path', ''), _negated=True), models.Q(models.Q(('sha256', ''), _negated=True), ('rows', 0), _connector='OR')), _connector='OR'), name='export_ready_has_a_file')],
            },
        ),
    ]
