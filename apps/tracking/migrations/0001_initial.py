import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.tracking.migrations import REPLACED


class Migration(migrations.Migration):

    initial = True

    replaces = [('tracking', name) for name in REPLACED]

    dependencies = [
        ('accounts', '0001_initial'),
        ('exports', '0001_initial'),
        ('rollouts', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='Tracker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('name', models.CharField(max_length=100, unique=True)),
                ('kind', models.CharField(default='mlflow', max_length=16)),
                ('address', models.CharField(blank=True, max_length=500)),
                ('project', models.CharField(default='gymweb', max_length=100)),
                ('secret_encrypted', models.TextField(blank=True, editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('created_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ['wandb', 'trackio']), models.Q(('kind', 'mlflow'), models.Q(('address', ''), _negated=True)), models.Q(('address', ''), ('kind', 'tensorboard'), ('secret_encrypted', '')), _connector='OR'), name='tracker_has_what_its_kind_needs')],
            },
        ),
        migrations.CreateModel(
            name='TrackedRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('attempts', models.PositiveIntegerField(default=0, editable=False)),
                ('next_attempt_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('failing_since', models.DateTimeField(blank=True, editable=False, null=True)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('key', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('project', models.CharField(max_length=100)),
                ('name', models.CharField(max_length=200)),
                ('samples', models.PositiveSmallIntegerField(default=0)),
                ('config', models.JSONField(default=dict, editable=False)),
                ('state', models.CharField(default='active', max_length=16)),
                ('run_id', models.CharField(blank=True, max_length=100)),
                ('url', models.CharField(blank=True, max_length=1000)),
                ('recorded', models.PositiveIntegerField(default=0)),
                ('sent', models.PositiveIntegerField(default=0)),
                ('is_complete', models.BooleanField(default=False)),
                ('measure_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('last_sent_at', models.DateTimeField(blank=True, null=True)),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tracked_runs', to='rollouts.collection')),
                ('created_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tracker', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='tracking.tracker')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state', 'active')), fields=['next_attempt_at'], name='run_active')],
                'constraints': [models.UniqueConstraint(fields=('tracker', 'collection'), name='run_of_a_collection_once_per_tracker'), models.CheckConstraint(condition=models.Q(('sent__lte', models.F('recorded'))), name='run_sends_only_recorded_points'), models.CheckConstraint(condition=models.Q(('state__in', ['active', 'finished', 'stopped', 'failed'])), name='run_state_is_known')],
            },
        ),
        migrations.CreateModel(
            name='HubPush',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('attempts', models.PositiveIntegerField(default=0, editable=False)),
                ('next_attempt_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('failing_since', models.DateTimeField(blank=True, editable=False, null=True)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('repository', models.CharField(max_length=200)),
                ('is_private', models.BooleanField(default=True)),
                ('token_encrypted', models.TextField(blank=True, editable=False)),
                ('state', models.CharField(default='pending', max_length=16)),
                ('url', models.CharField(blank=True, max_length=1000)),
                ('commit', models.CharField(blank=True, max_length=64)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('export', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='hub_pushes', to='exports.export')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state', 'pending')), fields=['next_attempt_at'], name='push_pending')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state', 'pending')), models.Q(('ended_at__isnull', False), ('state__in', ['pushed', 'failed']), ('token_encrypted', '')), _connector='OR'), name='push_keeps_its_token_only_while_pending')],
            },
        ),
        migrations.CreateModel(
            name='TrackedPoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('step', models.PositiveBigIntegerField()),
                ('version', models.CharField(blank=True, max_length=200)),
                ('of_version', models.BooleanField(default=False)),
                ('values', models.JSONField()),
                ('at', models.DateTimeField()),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='points', to='tracking.trackedrun')),
            ],
            options={
                'ordering': ['run_id', 'number'],
                'constraints': [models.UniqueConstraint(fields=('run', 'number'), name='point_once')],
            },
        ),
    ]

    operations = [CreateModels(tables)]
