import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

# Written out, not read from the registry: a migration must not change its meaning.
BUILTINS = [
    {
        "slug": "exact_match",
        "name": "Exact match",
        "description": (
            "No tools. The boxed answer, otherwise the last line, must equal the row's expected_answer after "
            "normalisation."
        ),
    },
    {
        "slug": "calculator",
        "name": "Calculator",
        "description": (
            "One tool, calculator{expression}. The boxed answer, otherwise the last number of the last line, must "
            "be the row's expected_answer."
        ),
    },
]


def create_environments(apps, editor):
    """A new installation has environments to run."""
    Environment = apps.get_model("environments", "Environment")
    for given in BUILTINS:
        Environment.objects.using(editor.connection.alias).get_or_create(
            slug=given["slug"], defaults={**given, "adapter": "builtin", "builtin": given["slug"]}
        )


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('policies', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Environment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField(blank=True)),
                ('adapter', models.CharField(choices=[('builtin', 'Built-in, in process'), ('http', 'Resource server over HTTP'), ('gymnasium', 'Gymnasium server over HTTP'), ('mcp', 'MCP server over HTTP'), ('mcp_process', 'MCP server as a process'), ('declared', 'No server, configured verifier')], default='http', max_length=16)),
                ('builtin', models.CharField(blank=True, help_text='Name of the built-in environment', max_length=64)),
                ('base_url', models.CharField(blank=True, help_text='URL of the server, e.g. http://127.0.0.1:8001; for MCP with its path, e.g. …/mcp', max_length=500)),
                ('api_key_encrypted', models.TextField(blank=True, editable=False)),
                ('api_key_hint', models.CharField(blank=True, editable=False, max_length=8)),
                ('command', models.SlugField(blank=True, help_text='Command from GYMWEB_MCP_COMMANDS that each attempt starts', max_length=64)),
                ('verifies', models.BooleanField(default=True, help_text='If off, rollouts complete without a reward, for human review')),
                ('verifier', models.JSONField(blank=True, default=dict, help_text='A verifier and its parameters, such as {"type": "exact_match"}; replaces the verifier of the server')),
                ('call_timeout', models.FloatField(default=60.0, help_text='Seconds until a seed or tool call fails', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(3600)])),
                ('connect_timeout', models.FloatField(default=10.0, help_text='Seconds until connecting fails', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(300)])),
                ('verify_timeout', models.FloatField(default=120.0, help_text='Seconds until a verification fails', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(3600)])),
                ('max_tries', models.PositiveSmallIntegerField(default=3, help_text='Maximum tries of a call if the server is unreachable', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(20)])),
                ('concurrency', models.PositiveIntegerField(default=1024, help_text='Maximum rollouts in flight over all workers', validators=[django.core.validators.MinValueValidator(1)])),
                ('worker_group', models.SlugField(blank=True, help_text='Only workers of this group use it; empty: workers without a group', max_length=64)),
                ('judge_model', models.ForeignKey(blank=True, help_text='Policy model that judges, called up to its concurrency limit', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='judged_environments', to='policies.policymodel')),
                ('judge_rubric', models.TextField(blank=True, help_text="Criteria for the judge; task rows can override it. Placeholders: {task}, {expected_answer}, {answer} and {trace}")),
                ('judge_settings', models.JSONField(blank=True, default=dict, help_text='For example {"question": "compare", "tries": 3} or {"scale": {"low": 1, "high": 5}, "reads": "trace"}')),
                ('health', models.CharField(choices=[('unknown', 'not checked'), ('healthy', 'healthy'), ('unhealthy', 'unhealthy')], default='unknown', editable=False, max_length=16)),
                ('health_message', models.CharField(blank=True, editable=False, max_length=500)),
                ('health_checked_at', models.DateTimeField(editable=False, null=True)),
                ('unwell_since', models.DateTimeField(editable=False, help_text='When its server became unhealthy; empty while it is healthy', null=True)),
                ('survey', models.JSONField(default=dict, editable=False, help_text='Tools and routes found by the last health check')),
                ('probe_due_at', models.DateTimeField(editable=False, help_text='Time of the next health check; empty for in-process environments', null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['name', 'id'],
                'indexes': [models.Index(fields=['probe_due_at'], name='environment_probes')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('adapter', 'builtin'), models.Q(('builtin', ''), _negated=True)), models.Q(('adapter__in', ['http', 'gymnasium', 'mcp']), models.Q(('base_url', ''), _negated=True)), models.Q(('adapter', 'mcp_process'), ('base_url', ''), models.Q(('command', ''), _negated=True)), models.Q(('adapter', 'declared'), ('base_url', ''), ('builtin', '')), _connector='OR'), name='environment_has_a_server', violation_error_message='Choose a built-in environment or a command, or give the base URL of a server.'), models.CheckConstraint(condition=models.Q(('concurrency__gte', 1), ('call_timeout__gt', 0), ('call_timeout__lte', 3600), ('connect_timeout__gt', 0), ('connect_timeout__lte', 300), ('verify_timeout__gt', 0), ('verify_timeout__lte', 3600), ('max_tries__gte', 1), ('max_tries__lte', 20)), name='environment_limits_are_possible', violation_error_message='A limit is out of range.'), models.CheckConstraint(condition=models.Q(('health__in', ['unknown', 'healthy', 'unhealthy'])), name='environment_health_is_known')],
            },
        ),
        migrations.RunPython(create_environments, migrations.RunPython.noop),
    ]
