from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.agents.migrations import REPLACED


def create_default_agent(apps, editor):
    """A new installation has an agent with no system prompt, no examples and the default limits."""
    agents = apps.get_model("agents", "Agent").objects.using(editor.connection.alias)
    agents.get_or_create(slug="default", defaults={"name": "Default"})


class Migration(migrations.Migration):

    initial = True

    replaces = [('agents', name) for name in REPLACED]

    dependencies = [
    ]

    tables = [
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('system_prompt', models.TextField(blank=True)),
                ('examples', models.JSONField(blank=True, default=list)),
                ('max_steps', models.PositiveSmallIntegerField(default=10)),
                ('time_limit', models.FloatField(default=600.0)),
                ('token_limit', models.PositiveIntegerField(default=1000000)),
                ('parallel_tool_calls', models.BooleanField(default=True)),
                ('sampling', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('kind', models.CharField(default='builtin', max_length=16)),
                ('command_settings', models.JSONField(blank=True, default=dict)),
                ('server_route', models.CharField(default='responses', max_length=16)),
                ('server_url', models.CharField(blank=True, max_length=500)),
                ('strict_tools', models.CharField(default='declared', max_length=16)),
                ('retry_empty_replies', models.BooleanField(default=False)),
            ],
            options={
                'ordering': ['name', 'id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('max_steps__gte', 1), ('max_steps__lte', 1000), ('time_limit__gt', 0), ('time_limit__lte', 86400), ('token_limit__gte', 1)), name='agent_limits_are_possible'), models.CheckConstraint(condition=models.Q(('kind__in', ['builtin', 'external', 'command', 'agent_server'])), name='agent_kind_is_known'), models.CheckConstraint(condition=models.Q(('strict_tools__in', ['declared', 'never'])), name='agent_strict_tools_is_known')],
            },
        ),
    ]

    operations = [
        CreateModels(tables),
        migrations.RunPython(create_default_agent, migrations.RunPython.noop),
    ]
