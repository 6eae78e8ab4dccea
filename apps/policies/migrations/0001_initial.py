import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyModel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('provider', models.CharField(choices=[('openai', 'OpenAI'), ('azure', 'Azure OpenAI'), ('vllm', 'vLLM'), ('compatible', 'Other OpenAI-compatible server'), ('scripted', 'Scripted, no LLM')], default='compatible', max_length=16)),
                ('wire', models.CharField(choices=[('responses', 'Responses API'), ('chat', 'Chat Completions API')], default='chat', max_length=16)),
                ('base_url', models.CharField(blank=True, help_text="With /v1, e.g. https://api.openai.com/v1; for Azure the endpoint of the resource", max_length=500)),
                ('more_base_urls', models.JSONField(blank=True, default=list, help_text='Further servers of the same model; a rollout stays with one server to reuse its prefix cache')),
                ('api_version', models.CharField(blank=True, help_text='Azure only, e.g. 2025-04-01-preview', max_length=32)),
                ('key_is_token', models.BooleanField(default=False, help_text='Azure only: the key is a Microsoft Entra ID token', verbose_name='bearer token')),
                ('model_name', models.CharField(blank=True, help_text='Model name at the endpoint', max_length=200)),
                ('api_key_encrypted', models.TextField(blank=True, editable=False)),
                ('api_key_hint', models.CharField(blank=True, editable=False, max_length=8)),
                ('sampling', models.JSONField(blank=True, default=dict, help_text='Defaults, for example {"temperature": 1.0, "max_output_tokens": 1024}')),
                ('reasoning', models.CharField(choices=[('field', 'In a separate field, sent back in later turns'), ('text', 'In the text between <think> tags, sent back in later turns'), ('dropped', 'In a separate field, not sent back')], default='field', help_text="Where replies contain reasoning, and whether later turns include it", max_length=16)),
                ('extra_headers', models.JSONField(blank=True, default=dict, help_text='Sent with every request, for example {"X-Team": "rl"}; {api_key} inserts the key')),
                ('extra_body', models.JSONField(blank=True, default=dict, help_text='Merged into every request, for example {"chat_template_kwargs": {"enable_thinking": false}}')),
                ('renamed_fields', models.JSONField(blank=True, default=dict, help_text='Other names of request fields, for example {"max_completion_tokens": "max_tokens"}')),
                ('version', models.CharField(blank=True, help_text='Current checkpoint, weights or adapter; recorded with every rollout', max_length=200)),
                ('call_timeout', models.FloatField(default=120.0, help_text='Seconds until a call fails', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(3600)])),
                ('connect_timeout', models.FloatField(default=10.0, help_text='Seconds until connecting fails', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(300)])),
                ('max_tries', models.PositiveSmallIntegerField(default=4, help_text='Maximum tries of a call that fails with 408, 5xx or a connection error', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(20)])),
                ('capture_tokens', models.BooleanField(default=False, help_text='Store token IDs and logprobs for training. Needs Chat Completions on vLLM.')),
                ('concurrency', models.PositiveIntegerField(default=256, help_text='Maximum rollouts in flight over all workers', validators=[django.core.validators.MinValueValidator(1)])),
                ('worker_group', models.SlugField(blank=True, help_text='Only workers of this group use it; empty: workers without a group', max_length=64)),
                ('input_price', models.FloatField(default=0.0, help_text='USD per million input tokens; 0: no cost', validators=[django.core.validators.MinValueValidator(0)])),
                ('cached_input_price', models.FloatField(blank=True, help_text='USD per million cached input tokens; empty: same as input tokens', null=True, validators=[django.core.validators.MinValueValidator(0)])),
                ('output_price', models.FloatField(default=0.0, help_text='USD per million output tokens', validators=[django.core.validators.MinValueValidator(0)])),
                ('mistake_rate', models.FloatField(default=0.4, help_text='Scripted only: share of rollouts in which the model makes a mistake', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1)])),
                ('health', models.CharField(choices=[('unknown', 'not checked'), ('healthy', 'healthy'), ('unhealthy', 'unhealthy')], default='unknown', editable=False, max_length=16)),
                ('health_message', models.CharField(blank=True, editable=False, max_length=500)),
                ('health_checks', models.JSONField(default=list, editable=False, help_text='Results of the last health check (apps.gym.wires.endpoint_checks)')),
                ('capabilities', models.JSONField(default=dict, editable=False, help_text='Metadata reported by the endpoint: max_model_len, server_version, …')),
                ('health_checked_at', models.DateTimeField(editable=False, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['name', 'id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('provider', 'scripted'), models.Q(models.Q(('base_url', ''), _negated=True), models.Q(('model_name', ''), _negated=True)), _connector='OR'), name='policy_model_has_an_endpoint', violation_error_message='Give a base URL and a model name, or choose the scripted provider.'), models.CheckConstraint(condition=models.Q(('concurrency__gte', 1), ('call_timeout__gt', 0), ('call_timeout__lte', 3600), ('connect_timeout__gt', 0), ('connect_timeout__lte', 300), ('max_tries__gte', 1), ('max_tries__lte', 20), ('mistake_rate__gte', 0), ('mistake_rate__lte', 1)), name='policy_model_limits_are_possible', violation_error_message='A limit is out of range.'), models.CheckConstraint(condition=models.Q(('input_price__gte', 0), ('input_price__lte', 1e+308), ('output_price__gte', 0), ('output_price__lte', 1e+308), models.Q(('cached_input_price__isnull', True), models.Q(('cached_input_price__gte', 0), ('cached_input_price__lte', 1e+308)), _connector='OR')), name='policy_model_prices_are_possible', violation_error_message='A price is a finite number, 0 or more.'), models.CheckConstraint(condition=models.Q(('health__in', ['unknown', 'healthy', 'unhealthy'])), name='policy_model_health_is_known')],
            },
        ),
        migrations.CreateModel(
            name='RedactionPattern',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('name', 'Values of this key or header'), ('prefix', 'Text with this prefix'), ('exception', 'Never redact this text')], max_length=16)),
                ('text', models.CharField(max_length=200)),
                ('least', models.PositiveSmallIntegerField(default=16, help_text='Minimum length after the prefix: letters, digits, _ or -', validators=[django.core.validators.MinValueValidator(4), django.core.validators.MaxValueValidator(200)])),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['kind', 'text'],
                'constraints': [models.UniqueConstraint(fields=('kind', 'text'), name='redaction_pattern_once', violation_error_message='This pattern already exists.'), models.CheckConstraint(condition=models.Q(('kind__in', ['name', 'prefix', 'exception']), models.Q(('text', ''), _negated=True), ('least__gte', 4), ('least__lte', 200)), name='redaction_pattern_is_possible')],
            },
        ),
    ]
