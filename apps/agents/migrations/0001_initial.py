import django.core.validators
from django.db import migrations, models

def create_default_agent(apps, editor):
    """A new installation has an agent with no system prompt, no examples and the default limits."""
    agents = apps.get_model("agents", "Agent").objects.using(editor.connection.alias)
    agents.get_or_create(slug="default", defaults={"name": "Default"})


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('system_prompt', models.TextField(blank=True, help_text="Placed before the task input; empty: none")),
                ('examples', models.JSONField(blank=True, default=list, help_text="Few-shot examples: Responses items placed before the task input")),
                ('max_steps', models.PositiveSmallIntegerField(default=10, help_text='Maximum turns, each one reply of the model. The rollout then ends with max_steps.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)])),
                ('time_limit', models.FloatField(default=600.0, help_text='Seconds, checked after each turn. The rollout is then verified.', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(86400)])),
                ('token_limit', models.PositiveIntegerField(default=1000000, help_text='Input and output tokens of all calls, checked after each turn. The rollout is then verified.', validators=[django.core.validators.MinValueValidator(1)])),
                ('parallel_tool_calls', models.BooleanField(default=True, help_text='Run the calls of a turn in parallel')),
                ('sampling', models.JSONField(blank=True, default=dict, help_text="Overrides the policy model's sampling defaults")),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['name', 'id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('max_steps__gte', 1), ('max_steps__lte', 1000), ('time_limit__gt', 0), ('time_limit__lte', 86400), ('token_limit__gte', 1)), name='agent_limits_are_possible', violation_error_message='A limit is out of range.')],
            },
        ),
        migrations.RunPython(create_default_agent, migrations.RunPython.noop),
    ]
