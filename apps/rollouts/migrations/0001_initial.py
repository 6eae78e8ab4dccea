import apps.rollouts.models.words
import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

_FTS = [
    # The words are in the table of the model; this table has only their index.
    """CREATE VIRTUAL TABLE rollouts_rolloutwords_fts USING fts5(
        document, content='rollouts_rolloutwords', content_rowid='id', tokenize='unicode61')""",
    """CREATE TRIGGER rollouts_rolloutwords_added AFTER INSERT ON rollouts_rolloutwords BEGIN
        INSERT INTO rollouts_rolloutwords_fts(rowid, document) VALUES (new.id, new.document); END""",
    """CREATE TRIGGER rollouts_rolloutwords_gone AFTER DELETE ON rollouts_rolloutwords BEGIN
        INSERT INTO rollouts_rolloutwords_fts(rollouts_rolloutwords_fts, rowid, document)
        VALUES ('delete', old.id, old.document); END""",
    """CREATE TRIGGER rollouts_rolloutwords_changed AFTER UPDATE OF id, document ON rollouts_rolloutwords BEGIN
        INSERT INTO rollouts_rolloutwords_fts(rollouts_rolloutwords_fts, rowid, document)
        VALUES ('delete', old.id, old.document);
        INSERT INTO rollouts_rolloutwords_fts(rowid, document) VALUES (new.id, new.document); END""",
]
_GIN = ["CREATE INDEX rollouts_rolloutwords_document ON rollouts_rolloutwords USING gin (document)"]
# Without these statistics PostgreSQL expects any bound on the sum to match a third of all rows, and scans a million of them.
_STATISTICS = "CREATE STATISTICS rollout_all_tokens ON ((input_tokens)::bigint + output_tokens) FROM rollouts_rollout"


def add_search_and_statistics(apps, editor):
    for statement in [*_GIN, _STATISTICS] if editor.connection.vendor == "postgresql" else _FTS:
        editor.execute(statement)


def remove_search(apps, editor):
    # Everything else goes with its table.
    if editor.connection.vendor == "sqlite":
        editor.execute("DROP TABLE rollouts_rolloutwords_fts")


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '__first__'),
        ('agents', '0001_initial'),
        ('environments', '0001_initial'),
        ('policies', '0001_initial'),
        ('tasks', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Collection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='tasks.dataset')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='tasks.datasetversion')),
                ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='environments.environment')),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='agents.agent')),
                ('policy_model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='policies.policymodel')),
                ('repeats', models.PositiveIntegerField(default=1)),
                ('limit', models.PositiveIntegerField(blank=True, help_text='Use only the first tasks', null=True)),
                ('seed', models.PositiveIntegerField(default=0)),
                ('sampling', models.JSONField(blank=True, default=dict)),
                ('split_repeats', models.JSONField(blank=True, default=dict, help_text='Rollouts per task by split, e.g. {"train": 8}; other splits use `repeats`')),
                ('splits', models.JSONField(blank=True, default=list, help_text='Only tasks of these splits')),
                ('tags', models.JSONField(blank=True, default=list, help_text='Only tasks that have all of these tags')),
                ('search', models.CharField(blank=True, help_text='Only tasks with these words in the id or at the start of the prompt', max_length=200)),
                ('prompt_template', models.JSONField(blank=True, default=dict, help_text="Replaces the task prompts: {system, user}, with {gaps}")),
                ('resume_from', models.ForeignKey(blank=True, help_text='Only rollouts that failed, were cancelled or are missing in that collection', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='resumed_by', to='rollouts.collection')),
                ('only_failed', models.BooleanField(default=False, help_text='Run only its failed rollouts')),
                ('priority', models.SmallIntegerField(default=0, help_text='Smaller numbers run first', validators=[django.core.validators.MinValueValidator(-1000), django.core.validators.MaxValueValidator(1000)])),
                ('concurrency', models.PositiveIntegerField(blank=True, help_text='Maximum concurrent rollouts of all workers; empty: the limits of model and environment', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('rollout_timeout', models.FloatField(default=1800.0, help_text='Seconds of wall time for one attempt', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(86400)])),
                ('max_attempts', models.PositiveSmallIntegerField(default=2, help_text='Maximum attempts per rollout after failures of models or environments; lost workers count separately', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(20)])),
                ('max_seconds', models.PositiveIntegerField(blank=True, default=604800, help_text='Seconds from the first rollout until it is paused', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('max_tokens', models.PositiveBigIntegerField(blank=True, help_text='Tokens of rollouts and judge until it is paused; empty: no limit', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('max_cost', models.FloatField(blank=True, help_text='USD at the prices of its models until it is paused; empty: no limit', null=True, validators=[django.core.validators.MinValueValidator(0)])),
                ('archived_at', models.DateTimeField(blank=True, help_text='When it was archived', null=True)),
                ('is_being_deleted', models.BooleanField(default=False, help_text='A worker is deleting it; pages and API no longer show it')),
                ('snapshot', models.JSONField(default=dict, help_text='The resolved agent, policy model and environment as planned')),
                ('idempotency_key', models.CharField(blank=True, max_length=128, null=True)),
                ('plan_digest', models.CharField(blank=True, help_text='SHA-256 of the request with that key', max_length=64)),
                ('state', models.CharField(choices=[('planning', 'planning'), ('running', 'running'), ('paused', 'paused'), ('completed', 'completed'), ('cancelled', 'cancelled')], default='planning', max_length=16)),
                ('pause_reason', models.CharField(blank=True, choices=[('asked', 'paused by a user'), ('max_seconds', 'the time limit is reached'), ('max_tokens', 'the token limit is reached'), ('max_cost', 'the cost limit is reached'), ('quota', 'the quota of a model is exhausted')], max_length=16)),
                ('total', models.PositiveIntegerField(default=0)),
                ('completed', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0)),
                ('cancelled', models.PositiveIntegerField(default=0)),
                ('retried', models.PositiveIntegerField(default=0, help_text='Attempts retried after a failure')),
                ('rewarded', models.PositiveIntegerField(default=0, help_text='Completed with a reward')),
                ('reward_sum', models.FloatField(default=0.0)),
                ('input_tokens', models.BigIntegerField(default=0)),
                ('output_tokens', models.BigIntegerField(default=0)),
                ('judge_tokens', models.BigIntegerField(default=0, help_text='Input and output tokens of the judge model')),
                ('calls_without_usage', models.BigIntegerField(default=0, help_text='Replies without token counts; limits and cost leave them out')),
                ('cost', models.FloatField(default=0.0, help_text='USD of all finished attempts, judge included')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='collections', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Last heartbeat of its planning')),
                ('reader', models.UUIDField(editable=False, help_text='Last reader of its stream', null=True)),
                ('left_at', models.DateTimeField(editable=False, help_text='When the reader of its stream disconnected', null=True)),
                ('started_at', models.DateTimeField(blank=True, help_text='When its first rollout was claimed', null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(fields=('idempotency_key', 'created_by'), name='collection_key_of_a_person'), models.UniqueConstraint(condition=models.Q(('created_by__isnull', True)), fields=('idempotency_key',), name='collection_key_of_commands'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'paused'), models.Q(('pause_reason', ''), _negated=True)), models.Q(models.Q(('state', 'paused'), _negated=True), ('pause_reason', '')), _connector='OR'), name='collection_paused_has_a_reason'), models.CheckConstraint(condition=models.Q(('state__in', ['planning', 'running', 'paused', 'completed', 'cancelled']), ('pause_reason__in', ['', 'asked', 'max_seconds', 'max_tokens', 'max_cost', 'quota'])), name='collection_state_is_known'), models.CheckConstraint(condition=models.Q(('repeats__gte', 1), models.Q(('concurrency__isnull', True), ('concurrency__gte', 1), _connector='OR'), ('rollout_timeout__gt', 0), ('rollout_timeout__lte', 86400), ('max_attempts__gte', 1), ('max_attempts__lte', 20), models.Q(('max_seconds__isnull', True), ('max_seconds__gte', 1), _connector='OR'), models.Q(('max_tokens__isnull', True), ('max_tokens__gte', 1), _connector='OR'), models.Q(('max_cost__isnull', True), models.Q(('max_cost__gte', 0), ('max_cost__lte', 1e+308)), _connector='OR'), ('priority__gte', -1000), ('priority__lte', 1000)), name='collection_limits_are_possible', violation_error_message='A limit is out of range.'), models.CheckConstraint(condition=models.Q(('cost__gte', 0), ('cost__lte', 1e+308), ('reward_sum__gte', -1e+308), ('reward_sum__lte', 1e+308)), name='collection_sums_are_finite'), models.CheckConstraint(condition=models.Q(('total__gte', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('completed'), '+', models.F('failed')), '+', models.F('cancelled')))), name='collection_counts_no_more_than_it_has'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['completed', 'cancelled']), _negated=True), ('finished_at__isnull', False), _connector='OR'), name='collection_finished_says_when')],
            },
        ),
        migrations.CreateModel(
            name='Rollout',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('collection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='rollouts', to='rollouts.collection')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='rollouts', to='tasks.task')),
                ('repeat', models.PositiveIntegerField(help_text='Repeat number, from 0')),
                ('seed', models.PositiveBigIntegerField(default=0)),
                ('status', models.CharField(choices=[('queued', 'queued'), ('running', 'running'), ('completed', 'completed'), ('failed', 'failed'), ('cancelled', 'cancelled')], default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0, help_text='Number of claims; with `lease`, a fencing token')),
                ('failures', models.PositiveSmallIntegerField(default=0, help_text='Counted failed attempts')),
                ('lost', models.PositiveSmallIntegerField(default=0, help_text='Number of workers lost while running it')),
                ('lease', models.BigIntegerField(blank=True, help_text='The worker that runs it', null=True)),
                ('model_version', models.CharField(blank=True, help_text="Version of the policy model at the start", max_length=200)),
                ('reward', models.FloatField(blank=True, null=True)),
                ('components', models.JSONField(blank=True, default=dict)),
                ('stop_reason', models.CharField(blank=True, max_length=32)),
                ('error_kind', models.CharField(blank=True, max_length=32)),
                ('error_message', models.TextField(blank=True)),
                ('turns', models.PositiveIntegerField(default=0)),
                ('tool_calls', models.PositiveIntegerField(default=0)),
                ('tool_errors', models.PositiveIntegerField(default=0)),
                ('input_tokens', models.PositiveIntegerField(default=0)),
                ('output_tokens', models.PositiveIntegerField(default=0)),
                ('judge_calls', models.PositiveIntegerField(default=0, help_text='Calls of the judge model')),
                ('judge_tokens', models.PositiveIntegerField(default=0, help_text='Input and output tokens of the judge model')),
                ('calls_without_usage', models.PositiveIntegerField(default=0, help_text='Replies without token counts; limits and cost leave them out')),
                ('cost', models.FloatField(default=0.0, help_text='USD at the prices of policy model and judge')),
                ('duration', models.FloatField(default=0.0, help_text='Duration of the attempt in seconds')),
                ('model_time', models.FloatField(default=0.0, help_text='Seconds in calls of the policy model, retries included')),
                ('tool_time', models.FloatField(default=0.0, help_text='Seconds in tool calls; parallel calls are added')),
                ('verify_time', models.FloatField(default=0.0, help_text='Seconds of verification, judges included')),
                ('tools', models.JSONField(blank=True, default=dict, help_text='By tool: calls, errors, seconds')),
                ('answer', models.CharField(blank=True, help_text='Normalised final answer', max_length=200)),
                ('redactions', models.JSONField(blank=True, default=dict, help_text='Number of redacted credentials by kind')),
                ('flagged', models.BooleanField(default=False, help_text='Redacted and not reviewed')),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(condition=models.Q(('status', 'queued')), fields=['collection', 'lost', 'id'], name='rollout_queue'), models.Index(condition=models.Q(('status', 'running')), fields=['lease'], name='rollout_leases'), models.Index(condition=models.Q(('flagged', True)), fields=['collection'], name='rollout_flagged'), models.Index(condition=models.Q(('calls_without_usage__gt', 0)), fields=['collection'], name='rollout_without_usage'), models.Index(fields=['collection', 'id'], name='rollout_page'), models.Index(condition=models.Q(('reward__isnull', False)), fields=['reward', 'id'], name='rollout_best'), models.Index(condition=models.Q(('reward__isnull', False)), fields=['collection', 'reward', 'id'], name='rollout_best_of'), models.Index(condition=models.Q(('status', 'completed'), _negated=True), fields=['status', 'id'], name='rollout_status'), models.Index(condition=models.Q(('status', 'completed'), _negated=True), fields=['collection', 'status', 'id'], name='rollout_status_of'), models.Index(condition=models.Q(('error_kind', ''), _negated=True), fields=['error_kind', 'id'], name='rollout_error'), models.Index(condition=models.Q(('error_kind', ''), _negated=True), fields=['collection', 'error_kind', 'id'], name='rollout_error_of'), models.Index(condition=models.Q(models.Q(('stop_reason', ''), _negated=True), models.Q(('stop_reason', 'answered'), _negated=True)), fields=['stop_reason', 'id'], name='rollout_stop'), models.Index(condition=models.Q(models.Q(('stop_reason', ''), _negated=True), models.Q(('stop_reason', 'answered'), _negated=True)), fields=['collection', 'stop_reason', 'id'], name='rollout_stop_of'), models.Index(condition=models.Q(('model_version', ''), _negated=True), fields=['model_version', 'id'], name='rollout_version'), models.Index(condition=models.Q(('model_version', ''), _negated=True), fields=['collection', 'model_version', 'id'], name='rollout_version_of'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['turns', 'id'], name='rollout_by_turns'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['tool_calls', 'id'], name='rollout_by_calls'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['duration', 'id'], name='rollout_by_duration'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['cost', 'id'], name='rollout_by_cost'), models.Index(django.db.models.expressions.CombinedExpression(django.db.models.functions.comparison.Cast('input_tokens', models.BigIntegerField()), '+', models.F('output_tokens')), models.F('id'), condition=models.Q(('finished_at__isnull', False)), name='rollout_by_tokens')],
                'constraints': [models.UniqueConstraint(fields=('collection', 'task', 'repeat'), name='rollout_once'), models.CheckConstraint(condition=models.Q(('reward__isnull', True), ('status', 'completed'), _connector='OR'), name='rollout_reward_means_completed'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'failed'), models.Q(('error_kind', ''), _negated=True)), models.Q(models.Q(('status', 'failed'), _negated=True), ('error_kind', '')), _connector='OR'), name='rollout_failed_has_a_kind'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'completed'), _negated=True), models.Q(('stop_reason', ''), _negated=True), _connector='OR'), name='rollout_completed_has_a_stop_reason'), models.CheckConstraint(condition=models.Q(models.Q(('lease__isnull', False), ('status', 'running')), models.Q(models.Q(('status', 'running'), _negated=True), ('lease__isnull', True)), _connector='OR'), name='rollout_running_has_a_lease'), models.CheckConstraint(condition=models.Q(('status__in', ['queued', 'running', 'completed', 'failed', 'cancelled']), ('error_kind__in', ['', 'policy_error', 'environment_error', 'verifier_error', 'judge_error', 'timed_out', 'worker_lost', 'cancelled']), ('stop_reason__in', ['', 'answered', 'environment_done', 'max_steps', 'max_output_tokens', 'context_length', 'content_filter', 'time_limit', 'token_limit', 'empty_reply'])), name='rollout_status_is_known'), models.CheckConstraint(condition=models.Q(('reward__isnull', True), models.Q(('reward__gte', -1e+100), ('reward__lte', 1e+100)), _connector='OR'), name='rollout_reward_is_finite'), models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['completed', 'failed']), _negated=True), models.Q(('attempt__gte', 1), ('finished_at__isnull', False)), _connector='OR'), name='rollout_ended_was_attempted')],
            },
        ),
        migrations.CreateModel(
            name='CollectionDeletion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('failing_since', models.DateTimeField(blank=True, help_text='When transient errors started; null after progress', null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True)),
                ('collection', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deletions', to='rollouts.collection')),
                ('chosen', models.JSONField(blank=True, default=dict, help_text='Rollouts to delete; empty: all, and the collection')),
                ('name', models.CharField(help_text='Name of the deleted object', max_length=220)),
                ('state', models.CharField(choices=[('queued', 'waiting for a worker'), ('deleting', 'deleting'), ('done', 'done'), ('failed', 'failed')], default='queued', max_length=16)),
                ('total', models.PositiveIntegerField(default=0, help_text='Number of rollouts')),
                ('deleted', models.PositiveIntegerField(default=0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Last heartbeat of the worker that runs it')),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['queued', 'deleting'])), fields=('collection',), name='deletion_of_a_collection_once_at_a_time')],
            },
        ),
        migrations.CreateModel(
            name='KeptFigures',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('collection', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='kept_figures', to='rollouts.collection')),
                ('policy_model', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='kept_figures', to='policies.policymodel')),
                ('facets', models.JSONField(blank=True, default=list, help_text='Cached breakdowns of a collection')),
                ('counted', models.CharField(blank=True, help_text='Counters at the time of the measurement', max_length=300)),
                ('content', models.TextField(blank=True, help_text='The figures as JSON; empty: never measured')),
                ('seconds', models.FloatField(default=0.0, help_text='Duration of the measurement')),
                ('measured_at', models.DateTimeField(blank=True, null=True)),
                ('wanted_at', models.DateTimeField(blank=True, help_text='When newer ones were requested', null=True)),
                ('claimed_at', models.DateTimeField(blank=True, help_text='When a worker started measuring', null=True)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(condition=models.Q(('wanted_at__isnull', False)), fields=['wanted_at'], name='kept_figures_wanted')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('collection__isnull', False), ('policy_model__isnull', True)), models.Q(('collection__isnull', True), ('policy_model__isnull', False)), _connector='OR'), name='kept_figures_are_of_one')],
            },
        ),
        migrations.CreateModel(
            name='Reverification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('failing_since', models.DateTimeField(blank=True, help_text='When transient errors started; null after progress', null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True)),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reverifications', to='rollouts.collection')),
                ('filters', models.JSONField(blank=True, default=dict, help_text='e.g. {"judge_failures": true}; none: all')),
                ('forced', models.BooleanField(default=False, help_text='Re-verify even if the verifier may need the state of the attempt')),
                ('replays', models.BooleanField(default=False, help_text='Replay the recorded tool calls in a new session')),
                ('state', models.CharField(choices=[('queued', 'queued'), ('verifying', 'verifying'), ('ready', 'ready'), ('applying', 'applying'), ('applied', 'applied'), ('cancelled', 'cancelled'), ('failed', 'failed')], default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0, help_text='Number of claims, used as a fencing token')),
                ('total', models.PositiveIntegerField(default=0)),
                ('verified', models.PositiveIntegerField(default=0, help_text='Rollouts with a new reward')),
                ('changed', models.PositiveIntegerField(default=0, help_text='Rollouts whose reward or components changed')),
                ('failed', models.PositiveIntegerField(default=0, help_text='Failed verifications')),
                ('applied', models.PositiveIntegerField(default=0)),
                ('stale', models.PositiveIntegerField(default=0, help_text='Changed in the meantime, so not updated')),
                ('cost', models.FloatField(default=0.0, help_text="USD of the judge's calls")),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='reverifications', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Last heartbeat of the worker that runs it')),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='UnindexedRollout',
            fields=[
                ('rollout', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='rollouts.rollout')),
                ('attempt', models.PositiveSmallIntegerField()),
                ('taken_at', models.DateTimeField(help_text='When a worker began with it', null=True)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['tries', 'taken_at'], name='unindexed_next')],
            },
        ),
        migrations.CreateModel(
            name='ReverifiedReward',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reverification', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rewards', to='rollouts.reverification')),
                ('rollout', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reverified_rewards', to='rollouts.rollout')),
                ('attempt', models.PositiveSmallIntegerField(help_text="The re-verified attempt of the rollout")),
                ('old_status', models.CharField(choices=[('queued', 'queued'), ('running', 'running'), ('completed', 'completed'), ('failed', 'failed'), ('cancelled', 'cancelled')], max_length=16)),
                ('old_reward', models.FloatField(blank=True, null=True)),
                ('old_components', models.JSONField(blank=True, default=dict)),
                ('new_reward', models.FloatField(blank=True, null=True)),
                ('new_components', models.JSONField(blank=True, default=dict)),
                ('difference', models.FloatField(blank=True, help_text='New − old; null unless both exist', null=True)),
                ('changed', models.BooleanField(default=False)),
                ('fate', models.CharField(blank=True, choices=[('applied', 'applied'), ('stale', 'the rollout changed in the meantime')], help_text='Empty until it is applied', max_length=16)),
                ('stop_reason', models.CharField(blank=True, max_length=32)),
                ('answer', models.CharField(blank=True, help_text='Normalised final answer', max_length=200)),
                ('events', models.TextField(blank=True, help_text='Events to append to the trace, one per line: judge calls, verdict')),
                ('error_kind', models.CharField(blank=True, max_length=32)),
                ('error_message', models.TextField(blank=True)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(condition=models.Q(('changed', True)), fields=['reverification', 'id'], name='reverified_changed')],
                'constraints': [models.UniqueConstraint(fields=('reverification', 'rollout'), name='reverified_once'), models.CheckConstraint(condition=models.Q(('new_reward__isnull', True), ('error_kind', ''), _connector='OR'), name='reverified_or_failed')],
            },
        ),
        migrations.CreateModel(
            name='RolloutWords',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rollout', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='words', to='rollouts.rollout')),
                ('part', models.PositiveSmallIntegerField(default=0)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('document', apps.rollouts.models.words.DocumentField()),
                ('is_cut', models.BooleanField(default=False, help_text='The text was truncated')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('rollout', 'part'), name='words_once_a_part')],
            },
        ),
        migrations.CreateModel(
            name='Throttle',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('policy_model', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='policies.policymodel')),
                ('environment', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='environments.environment')),
                ('control', models.JSONField(default=dict, help_text='The state of apps.gym.calls.rate_control.RateControl')),
                ('limited_until', models.DateTimeField(help_text='Calls wait for starts until this time', null=True)),
                ('paused_until', models.DateTimeField(help_text='No calls start before this time', null=True)),
                ('rate', models.FloatField(help_text='Current rate limit, in requests per second', null=True)),
                ('concurrency', models.PositiveIntegerField(help_text='Maximum concurrent calls; null if unlimited', null=True)),
                ('retry_after', models.FloatField(help_text='Seconds that the endpoint last asked to wait', null=True)),
                ('message', models.CharField(blank=True, help_text='Message of the last throttled reply', max_length=500)),
                ('quota_message', models.CharField(blank=True, help_text='Last quota error from the provider', max_length=500)),
                ('quota_at', models.DateTimeField(help_text='Time of the last quota error', null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('environment__isnull', False), ('policy_model__isnull', True)), models.Q(('environment__isnull', True), ('policy_model__isnull', False)), _connector='OR'), name='throttle_has_one_endpoint'), models.CheckConstraint(condition=models.Q(('rate__isnull', True), models.Q(('rate__gt', 0), ('rate__lte', 1e+308)), _connector='OR'), name='throttle_rate_is_possible')],
            },
        ),
        migrations.CreateModel(
            name='TraceEvent',
            fields=[
                ('pk', models.CompositePrimaryKey('rollout_id', 'attempt', 'seq', blank=True, editable=False, primary_key=True, serialize=False)),
                ('rollout', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='rollouts.rollout')),
                ('attempt', models.PositiveSmallIntegerField()),
                ('seq', models.PositiveIntegerField()),
                ('kind', models.CharField(max_length=32)),
                ('payload', models.TextField()),
                ('tokens', models.BinaryField(help_text='Token ids and logprobs of a model call, packed', null=True)),
            ],
            options={
                'ordering': ['attempt', 'seq'],
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('group', models.SlugField(blank=True, help_text='Worker group; selects models and environments', max_length=64)),
                ('seats', models.PositiveIntegerField()),
                ('busy', models.PositiveIntegerField(default=0)),
                ('backlog', models.PositiveIntegerField(default=0, help_text='Rollouts waiting to be stored')),
                ('trouble', models.CharField(blank=True, help_text='Why it cannot claim rollouts', max_length=500)),
                ('refuses', models.JSONField(blank=True, default=dict, help_text='Collections that it cannot run: id and reason')),
                ('meters', models.JSONField(default=dict, help_text='Counters since its start (apps.rollouts.engine.worker_counters)')),
                ('state', models.CharField(choices=[('active', 'active'), ('draining', 'draining'), ('stopped', 'stopped'), ('lost', 'lost')], default='active', max_length=16)),
                ('started_at', models.DateTimeField(auto_now_add=True)),
                ('heartbeat_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('lease_expires_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['active', 'draining', 'stopped', 'lost']), ('seats__gte', 1)), name='worker_is_possible')],
            },
        ),
        migrations.CreateModel(
            name='Breaker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('policy_model', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='policies.policymodel')),
                ('environment', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='environments.environment')),
                ('state', models.CharField(choices=[('closed', 'closed'), ('open', 'open'), ('half_open', 'half open')], default='closed', max_length=16)),
                ('failures', models.PositiveIntegerField(default=0, help_text='Calls that failed in a row')),
                ('message', models.CharField(blank=True, help_text='Last error message', max_length=500)),
                ('opened_at', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='When one rollout may test it', null=True)),
                ('cooldown', models.FloatField(default=0.0, help_text='Seconds between the last two tests')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('environment__isnull', False), ('policy_model__isnull', True)), models.Q(('environment__isnull', True), ('policy_model__isnull', False)), _connector='OR'), name='breaker_has_one_endpoint'), models.CheckConstraint(condition=models.Q(('state', 'closed'), models.Q(('opened_at__isnull', False), ('retry_at__isnull', False)), _connector='OR'), name='breaker_open_says_since_when'), models.CheckConstraint(condition=models.Q(('state__in', ['closed', 'open', 'half_open'])), name='breaker_state_is_known')],
            },
        ),
        migrations.RunPython(add_search_and_statistics, remove_search),
    ]
