import django.db.models.deletion
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.environments.migrations import REPLACED


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

    replaces = [('environments', name) for name in REPLACED]

    dependencies = [
        ('policies', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='Environment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField(blank=True)),
                ('adapter', models.CharField(default='http', max_length=16)),
                ('builtin', models.CharField(blank=True, max_length=64)),
                ('base_url', models.CharField(blank=True, max_length=500)),
                ('api_key_encrypted', models.TextField(blank=True, editable=False)),
                ('api_key_hint', models.CharField(blank=True, editable=False, max_length=8)),
                ('command', models.SlugField(blank=True, max_length=64)),
                ('verifies', models.BooleanField(default=True)),
                ('verifier', models.JSONField(blank=True, default=dict)),
                ('call_timeout', models.FloatField(default=60.0)),
                ('connect_timeout', models.FloatField(default=10.0)),
                ('verify_timeout', models.FloatField(default=120.0)),
                ('max_tries', models.PositiveSmallIntegerField(default=3)),
                ('concurrency', models.PositiveIntegerField(default=1024)),
                ('worker_group', models.SlugField(blank=True, max_length=64)),
                ('judge_model', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='judged_environments', to='policies.policymodel')),
                ('judge_rubric', models.TextField(blank=True)),
                ('judge_settings', models.JSONField(blank=True, default=dict)),
                ('health', models.CharField(default='unknown', editable=False, max_length=16)),
                ('health_message', models.CharField(blank=True, editable=False, max_length=500)),
                ('health_checked_at', models.DateTimeField(editable=False, null=True)),
                ('unwell_since', models.DateTimeField(editable=False, null=True)),
                ('survey', models.JSONField(default=dict, editable=False)),
                ('probe_due_at', models.DateTimeField(editable=False, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('solve_threshold', models.FloatField(db_default=1.0, default=1.0)),
            ],
            options={
                'ordering': ['name', 'id'],
                'indexes': [models.Index(fields=['probe_due_at'], name='environment_probes')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('adapter', 'builtin'), models.Q(('builtin', ''), _negated=True)), models.Q(('adapter__in', ['http', 'gymnasium', 'mcp']), models.Q(('base_url', ''), _negated=True)), models.Q(('adapter', 'mcp_process'), ('base_url', ''), models.Q(('command', ''), _negated=True)), models.Q(('adapter', 'declared'), ('base_url', ''), ('builtin', '')), _connector='OR'), name='environment_has_a_server'), models.CheckConstraint(condition=models.Q(('concurrency__gte', 1), ('call_timeout__gt', 0), ('call_timeout__lte', 3600), ('connect_timeout__gt', 0), ('connect_timeout__lte', 300), ('verify_timeout__gt', 0), ('verify_timeout__lte', 3600), ('max_tries__gte', 1), ('max_tries__lte', 20)), name='environment_limits_are_possible'), models.CheckConstraint(condition=models.Q(('health__in', ['unknown', 'healthy', 'unhealthy'])), name='environment_health_is_known'), models.CheckConstraint(condition=models.Q(('solve_threshold__gte', -1e+100), ('solve_threshold__lte', 1e+100)), name='environment_solve_threshold_is_finite')],
            },
        ),
    ]

    operations = [
        CreateModels(tables),
        migrations.RunPython(create_environments, migrations.RunPython.noop),
    ]
