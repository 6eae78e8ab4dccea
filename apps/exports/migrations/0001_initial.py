import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.exports.migrations import REPLACED


class Migration(migrations.Migration):

    initial = True

    replaces = [('exports', name) for name in REPLACED]

    dependencies = [
        ('accounts', '0001_initial'),
        ('pairs', '0001_initial'),
        ('rollouts', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='Export',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('format', models.CharField(max_length=32)),
                ('encoding', models.CharField(default='jsonl', max_length=16)),
                ('filters', models.JSONField(blank=True, default=dict)),
                ('options', models.JSONField(blank=True, default=dict)),
                ('validation_share', models.FloatField(default=0.0)),
                ('split_seed', models.BigIntegerField(default=0)),
                ('state', models.CharField(default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('path', models.CharField(blank=True, max_length=500)),
                ('total', models.PositiveIntegerField(default=0)),
                ('considered', models.PositiveIntegerField(default=0)),
                ('rows', models.PositiveIntegerField(default=0)),
                ('bytes', models.BigIntegerField(default=0)),
                ('sha256', models.CharField(blank=True, max_length=64)),
                ('manifest', models.JSONField(default=dict)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='exports', to='rollouts.collection')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='exports', to=settings.AUTH_USER_MODEL)),
                ('pair_set', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='exports', to='pairs.pairset')),
                ('mask_credentials', models.BooleanField(db_default=False, default=False)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('encoding__in', ['jsonl', 'jsonl.gz', 'parquet']), ('validation_share__gte', 0.0), ('validation_share__lte', 0.5)), name='export_is_possible'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'ready'), _negated=True), models.Q(models.Q(('path', ''), _negated=True), models.Q(models.Q(('sha256', ''), _negated=True), ('rows', 0), _connector='OR')), _connector='OR'), name='export_ready_has_a_file')],
            },
        ),
        migrations.CreateModel(
            name='TraceDestination',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('name', models.CharField(max_length=100, unique=True)),
                ('url_encrypted', models.TextField(editable=False)),
                ('url_hint', models.CharField(editable=False, max_length=300)),
                ('headers_encrypted', models.TextField(blank=True, editable=False)),
                ('header_names', models.JSONField(default=list, editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('created_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='TraceSend',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('state', models.CharField(default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('total', models.PositiveIntegerField(default=0)),
                ('sent', models.PositiveIntegerField(default=0)),
                ('spans', models.PositiveIntegerField(default=0)),
                ('rejected_spans', models.PositiveIntegerField(default=0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('destination', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sends', to='exports.tracedestination')),
                ('export', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='trace_sends', to='exports.export')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state__in', ['queued', 'sending'])), fields=['id'], name='trace_send_unfinished')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['queued', 'sending'])), fields=('export', 'destination'), name='trace_send_once_at_a_time'), models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'sending', 'sent', 'failed', 'cancelled']), ('sent__lte', models.F('total'))), name='trace_send_state_is_known')],
            },
        ),
    ]

    operations = [CreateModels(tables)]
