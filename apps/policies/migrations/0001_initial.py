from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.policies.migrations import REPLACED


class Migration(migrations.Migration):

    initial = True

    replaces = [('policies', name) for name in REPLACED]

    dependencies = [
    ]

    tables = [
        migrations.CreateModel(
            name='PolicyModel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('provider', models.CharField(default='compatible', max_length=16)),
                ('wire', models.CharField(default='chat', max_length=16)),
                ('base_url', models.CharField(blank=True, max_length=500)),
                ('more_base_urls', models.JSONField(blank=True, default=list)),
                ('api_version', models.CharField(blank=True, max_length=32)),
                ('key_is_token', models.BooleanField(default=False)),
                ('model_name', models.CharField(blank=True, max_length=200)),
                ('api_key_encrypted', models.TextField(blank=True, editable=False)),
                ('api_key_hint', models.CharField(blank=True, editable=False, max_length=8)),
                ('sampling', models.JSONField(blank=True, default=dict)),
                ('reasoning', models.CharField(default='field', max_length=16)),
                ('extra_headers', models.JSONField(blank=True, default=dict)),
                ('extra_body', models.JSONField(blank=True, default=dict)),
                ('renamed_fields', models.JSONField(blank=True, default=dict)),
                ('version', models.CharField(blank=True, max_length=200)),
                ('call_timeout', models.FloatField(default=120.0)),
                ('connect_timeout', models.FloatField(default=10.0)),
                ('max_tries', models.PositiveSmallIntegerField(default=4)),
                ('capture_tokens', models.BooleanField(default=False)),
                ('concurrency', models.PositiveIntegerField(default=256)),
                ('worker_group', models.SlugField(blank=True, max_length=64)),
                ('input_price', models.FloatField(default=0.0)),
                ('cached_input_price', models.FloatField(blank=True, null=True)),
                ('output_price', models.FloatField(default=0.0)),
                ('mistake_rate', models.FloatField(default=0.4)),
                ('health', models.CharField(default='unknown', editable=False, max_length=16)),
                ('health_message', models.CharField(blank=True, editable=False, max_length=500)),
                ('health_checks', models.JSONField(default=list, editable=False)),
                ('capabilities', models.JSONField(default=dict, editable=False)),
                ('health_checked_at', models.DateTimeField(editable=False, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('cache_write_price', models.FloatField(blank=True, null=True)),
                ('logprob_mode', models.CharField(default='raw_logprobs', max_length=32)),
            ],
            options={
                'ordering': ['name', 'id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('provider', 'scripted'), models.Q(models.Q(('base_url', ''), _negated=True), models.Q(('model_name', ''), _negated=True)), _connector='OR'), name='policy_model_has_an_endpoint'), models.CheckConstraint(condition=models.Q(('concurrency__gte', 1), ('call_timeout__gt', 0), ('call_timeout__lte', 3600), ('connect_timeout__gt', 0), ('connect_timeout__lte', 300), ('max_tries__gte', 1), ('max_tries__lte', 20), ('mistake_rate__gte', 0), ('mistake_rate__lte', 1)), name='policy_model_limits_are_possible'), models.CheckConstraint(condition=models.Q(('health__in', ['unknown', 'healthy', 'unhealthy'])), name='policy_model_health_is_known'), models.CheckConstraint(condition=models.Q(('provider', 'scripted'), models.Q(('provider', 'anthropic'), ('wire', 'messages')), models.Q(('provider', 'anthropic'), ('wire', 'messages'), _connector='OR', _negated=True), _connector='OR'), name='policy_model_messages_wire_is_anthropics'), models.CheckConstraint(condition=models.Q(models.Q(('input_price__isnull', True), models.Q(('input_price__gte', 0), ('input_price__lte', 1e+308)), _connector='OR'), models.Q(('cached_input_price__isnull', True), models.Q(('cached_input_price__gte', 0), ('cached_input_price__lte', 1e+308)), _connector='OR'), models.Q(('cache_write_price__isnull', True), models.Q(('cache_write_price__gte', 0), ('cache_write_price__lte', 1e+308)), _connector='OR'), models.Q(('output_price__isnull', True), models.Q(('output_price__gte', 0), ('output_price__lte', 1e+308)), _connector='OR')), name='policy_model_prices_are_possible'), models.CheckConstraint(condition=models.Q(('logprob_mode__in', ['raw_logprobs', 'processed_logprobs'])), name='policy_model_logprob_mode_is_known')],
            },
        ),
        migrations.CreateModel(
            name='RedactionPattern',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=16)),
                ('text', models.CharField(max_length=200)),
                ('least', models.PositiveSmallIntegerField(default=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['kind', 'text'],
                'constraints': [models.UniqueConstraint(fields=('kind', 'text'), name='redaction_pattern_once'), models.CheckConstraint(condition=models.Q(('kind__in', ['name', 'prefix', 'exception']), models.Q(('text', ''), _negated=True), ('least__gte', 4), ('least__lte', 200)), name='redaction_pattern_is_possible')],
            },
        ),
    ]

    operations = [CreateModels(tables)]
