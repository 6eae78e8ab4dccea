from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0003_rechecks'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='rollout',
            name='rollout_status_is_known',
        ),
        migrations.AddConstraint(
            model_name='rollout',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['queued', 'running', 'completed', 'failed', 'cancelled']), ('error_kind__in', ['', 'policy_error', 'environment_error', 'verifier_error', 'verifier_timeout', 'judge_error', 'agent_error', 'agent_lost', 'timed_out', 'worker_lost', 'cancelled']), ('stop_reason__in', ['', 'answered', 'environment_done', 'max_steps', 'max_output_tokens', 'context_length', 'content_filter', 'time_limit', 'token_limit', 'empty_reply'])), name='rollout_status_is_known'),
        ),
    ]
