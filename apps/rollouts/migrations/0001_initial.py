import apps.rollouts.models.words
import apps.rollouts.trace_payloads
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.rollouts.migrations import REPLACED

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
_GIN = "CREATE INDEX rollouts_rolloutwords_document ON rollouts_rolloutwords USING gin (document)"
# Without these statistics PostgreSQL expects any bound on the sum to match a third of all rows, and scans a million of them.
_STATISTICS = "CREATE STATISTICS rollout_all_tokens ON ((input_tokens)::bigint + output_tokens) FROM rollouts_rollout"
# Asynchronous commits: rollouts start only after a later, synchronous commit, which also flushes these.
_RELEASE = """
CREATE FUNCTION rollouts_release(me bigint, own_collections bigint[], own_running int[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE rollouts_reservation
    SET slots = COALESCE(own_running[array_position(own_collections, collection_id)], 0)
    WHERE worker_id = me AND slots > COALESCE(own_running[array_position(own_collections, collection_id)], 0);
END $$
"""
# 0x47594D00 and above: "GYM", lock numbers that nothing else in this database uses. Each claim takes its locks in the
# same order, so claims do not deadlock. Each statement sees everything committed before it began, so the sums include
# everything reserved under these locks before.
_RESERVE = """
CREATE FUNCTION rollouts_reserve(
    me bigint, target bigint, wanted int, asked int, room int, own_collections bigint[], own_running int[]
)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    model bigint; environment bigint; model_limit int; environment_limit int; own_limit int; granted int;
BEGIN
    PERFORM rollouts_release(me, own_collections, own_running);
    PERFORM set_config('lock_timeout', '2000', true);
    SELECT c.policy_model_id, c.environment_id, m.concurrency, e.concurrency, LEAST(c.concurrency, room)
    INTO model, environment, model_limit, environment_limit, own_limit
    FROM rollouts_collection c
    JOIN policies_policymodel m ON m.id = c.policy_model_id
    JOIN environments_environment e ON e.id = c.environment_id
    WHERE c.id = target AND c.state = 'running';
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM pg_advisory_xact_lock(x'47594D01'::int, (model % 2147483647)::int);
    PERFORM pg_advisory_xact_lock(x'47594D02'::int, (environment % 2147483647)::int);
    IF own_limit IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(x'47594D03'::int, (target % 2147483647)::int);
    END IF;
    SELECT LEAST(
        wanted,
        model_limit - asked - COALESCE(SUM(sums.slots) FILTER (WHERE c.policy_model_id = model), 0),
        environment_limit - COALESCE(SUM(sums.slots) FILTER (WHERE c.environment_id = environment), 0),
        own_limit - COALESCE(SUM(sums.slots) FILTER (WHERE c.id = target), 0)
    ) INTO granted
    FROM (
        SELECT r.collection_id, SUM(r.slots) AS slots FROM rollouts_reservation r
        WHERE r.slots > 0
            AND r.worker_id = ANY(ARRAY(SELECT id FROM rollouts_worker WHERE state IN ('active', 'draining')))
        GROUP BY r.collection_id
    ) sums JOIN rollouts_collection c ON c.id = sums.collection_id;
    IF granted <= 0 THEN
        RETURN 0;
    END IF;
    INSERT INTO rollouts_reservation (worker_id, collection_id, slots) VALUES (me, target, granted)
    ON CONFLICT (worker_id, collection_id) DO UPDATE SET slots = rollouts_reservation.slots + EXCLUDED.slots;
    RETURN granted;
END $$
"""
_DROP = "DROP FUNCTION rollouts_release, rollouts_reserve(bigint, bigint, int, int, int, bigint[], int[])"


def add_search_statistics_and_functions(apps, editor):
    postgres = [_GIN, _STATISTICS, _RELEASE, _RESERVE]
    for statement in postgres if editor.connection.vendor == "postgresql" else _FTS:
        editor.execute(statement, None)


def remove_search_and_functions(apps, editor):
    # Everything else is deleted with its table.
    editor.execute(_DROP if editor.connection.vendor == "postgresql" else "DROP TABLE rollouts_rolloutwords_fts", None)


class Migration(migrations.Migration):

    initial = True

    replaces = [('rollouts', name) for name in REPLACED]

    dependencies = [
        ('accounts', '0001_initial'),
        ('agents', '0001_initial'),
        ('environments', '0001_initial'),
        ('policies', '0001_initial'),
        ('tasks', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='Collection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='tasks.dataset')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='tasks.datasetversion')),
                ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='environments.environment')),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='agents.agent')),
                ('policy_model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='collections', to='policies.policymodel')),
                ('repeats', models.PositiveIntegerField(default=1)),
                ('limit', models.PositiveIntegerField(blank=True, null=True)),
                ('seed', models.PositiveIntegerField(default=0)),
                ('sampling', models.JSONField(blank=True, default=dict)),
                ('split_repeats', models.JSONField(blank=True, default=dict)),
                ('splits', models.JSONField(blank=True, default=list)),
                ('tags', models.JSONField(blank=True, default=list)),
                ('search', models.CharField(blank=True, max_length=200)),
                ('prompt_template', models.JSONField(blank=True, default=dict)),
                ('resume_from', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='resumed_by', to='rollouts.collection')),
                ('only_failed', models.BooleanField(default=False)),
                ('priority', models.SmallIntegerField(default=0)),
                ('concurrency', models.PositiveIntegerField(blank=True, null=True)),
                ('rollout_timeout', models.FloatField(default=1800.0)),
                ('max_attempts', models.PositiveSmallIntegerField(default=2)),
                ('max_seconds', models.PositiveIntegerField(blank=True, default=604800, null=True)),
                ('max_tokens', models.PositiveBigIntegerField(blank=True, null=True)),
                ('max_cost', models.FloatField(blank=True, null=True)),
                ('archived_at', models.DateTimeField(blank=True, null=True)),
                ('is_being_deleted', models.BooleanField(default=False)),
                ('snapshot', models.JSONField(default=dict)),
                ('idempotency_key', models.CharField(blank=True, max_length=128, null=True)),
                ('plan_digest', models.CharField(blank=True, max_length=64)),
                ('state', models.CharField(default='planning', max_length=16)),
                ('pause_reason', models.CharField(blank=True, max_length=16)),
                ('total', models.PositiveIntegerField(default=0)),
                ('completed', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0)),
                ('cancelled', models.PositiveIntegerField(default=0)),
                ('retried', models.PositiveIntegerField(default=0)),
                ('rewarded', models.PositiveIntegerField(default=0)),
                ('reward_sum', models.FloatField(default=0.0)),
                ('input_tokens', models.BigIntegerField(default=0)),
                ('output_tokens', models.BigIntegerField(default=0)),
                ('judge_tokens', models.BigIntegerField(default=0)),
                ('calls_without_usage', models.BigIntegerField(default=0)),
                ('cost', models.FloatField(default=0.0)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='collections', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('reader', models.UUIDField(editable=False, null=True)),
                ('left_at', models.DateTimeField(editable=False, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('solve_threshold', models.FloatField(db_default=1.0, default=1.0)),
                ('traces_deleted_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(fields=('idempotency_key', 'created_by'), name='collection_key_of_a_person'), models.UniqueConstraint(condition=models.Q(('created_by__isnull', True)), fields=('idempotency_key',), name='collection_key_of_commands'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'paused'), models.Q(('pause_reason', ''), _negated=True)), models.Q(models.Q(('state', 'paused'), _negated=True), ('pause_reason', '')), _connector='OR'), name='collection_paused_has_a_reason'), models.CheckConstraint(condition=models.Q(('state__in', ['planning', 'running', 'paused', 'completed', 'cancelled']), ('pause_reason__in', ['', 'asked', 'max_seconds', 'max_tokens', 'max_cost', 'quota'])), name='collection_state_is_known'), models.CheckConstraint(condition=models.Q(('repeats__gte', 1), models.Q(('concurrency__isnull', True), ('concurrency__gte', 1), _connector='OR'), ('rollout_timeout__gt', 0), ('rollout_timeout__lte', 86400), ('max_attempts__gte', 1), ('max_attempts__lte', 20), models.Q(('max_seconds__isnull', True), ('max_seconds__gte', 1), _connector='OR'), models.Q(('max_tokens__isnull', True), ('max_tokens__gte', 1), _connector='OR'), models.Q(('max_cost__isnull', True), models.Q(('max_cost__gte', 0), ('max_cost__lte', 1e+308)), _connector='OR'), ('priority__gte', -1000), ('priority__lte', 1000)), name='collection_limits_are_possible'), models.CheckConstraint(condition=models.Q(('cost__gte', 0), ('cost__lte', 1e+308), ('reward_sum__gte', -1e+308), ('reward_sum__lte', 1e+308)), name='collection_sums_are_finite'), models.CheckConstraint(condition=models.Q(('total__gte', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('completed'), '+', models.F('failed')), '+', models.F('cancelled')))), name='collection_counts_no_more_than_it_has'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['completed', 'cancelled']), _negated=True), ('finished_at__isnull', False), _connector='OR'), name='collection_finished_says_when'), models.CheckConstraint(condition=models.Q(('solve_threshold__gte', -1e+100), ('solve_threshold__lte', 1e+100)), name='collection_solve_threshold_is_finite')],
            },
        ),
        migrations.CreateModel(
            name='Rollout',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('collection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='rollouts', to='rollouts.collection')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='rollouts', to='tasks.task')),
                ('repeat', models.PositiveIntegerField()),
                ('seed', models.PositiveBigIntegerField(default=0)),
                ('status', models.CharField(default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('failures', models.PositiveSmallIntegerField(default=0)),
                ('lost', models.PositiveSmallIntegerField(default=0)),
                ('lease', models.BigIntegerField(blank=True, null=True)),
                ('model_version', models.CharField(blank=True, max_length=200)),
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
                ('judge_calls', models.PositiveIntegerField(default=0)),
                ('judge_tokens', models.PositiveIntegerField(default=0)),
                ('calls_without_usage', models.PositiveIntegerField(default=0)),
                ('cost', models.FloatField(default=0.0)),
                ('duration', models.FloatField(default=0.0)),
                ('model_time', models.FloatField(default=0.0)),
                ('tool_time', models.FloatField(default=0.0)),
                ('verify_time', models.FloatField(default=0.0)),
                ('tools', models.JSONField(blank=True, default=dict)),
                ('answer', models.CharField(blank=True, max_length=200)),
                ('redactions', models.JSONField(blank=True, default=dict)),
                ('flagged', models.BooleanField(default=False)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(condition=models.Q(('status', 'queued')), fields=['collection', 'lost', 'id'], name='rollout_queue'), models.Index(condition=models.Q(('status', 'running')), fields=['lease'], name='rollout_leases'), models.Index(condition=models.Q(('flagged', True)), fields=['collection'], name='rollout_flagged'), models.Index(condition=models.Q(('calls_without_usage__gt', 0)), fields=['collection'], name='rollout_without_usage'), models.Index(fields=['collection', 'id'], name='rollout_page'), models.Index(condition=models.Q(('reward__isnull', False)), fields=['reward', 'id'], name='rollout_best'), models.Index(condition=models.Q(('reward__isnull', False)), fields=['collection', 'reward', 'id'], name='rollout_best_of'), models.Index(condition=models.Q(('status', 'completed'), _negated=True), fields=['status', 'id'], name='rollout_status'), models.Index(condition=models.Q(('status', 'completed'), _negated=True), fields=['collection', 'status', 'id'], name='rollout_status_of'), models.Index(condition=models.Q(('error_kind', ''), _negated=True), fields=['error_kind', 'id'], name='rollout_error'), models.Index(condition=models.Q(('error_kind', ''), _negated=True), fields=['collection', 'error_kind', 'id'], name='rollout_error_of'), models.Index(condition=models.Q(models.Q(('stop_reason', ''), _negated=True), models.Q(('stop_reason', 'answered'), _negated=True)), fields=['stop_reason', 'id'], name='rollout_stop'), models.Index(condition=models.Q(models.Q(('stop_reason', ''), _negated=True), models.Q(('stop_reason', 'answered'), _negated=True)), fields=['collection', 'stop_reason', 'id'], name='rollout_stop_of'), models.Index(condition=models.Q(('model_version', ''), _negated=True), fields=['model_version', 'id'], name='rollout_version'), models.Index(condition=models.Q(('model_version', ''), _negated=True), fields=['collection', 'model_version', 'id'], name='rollout_version_of'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['turns', 'id'], name='rollout_by_turns'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['tool_calls', 'id'], name='rollout_by_calls'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['duration', 'id'], name='rollout_by_duration'), models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['cost', 'id'], name='rollout_by_cost'), models.Index(django.db.models.expressions.CombinedExpression(django.db.models.functions.comparison.Cast('input_tokens', models.BigIntegerField()), '+', models.F('output_tokens')), models.F('id'), condition=models.Q(('finished_at__isnull', False)), name='rollout_by_tokens')],
                'constraints': [models.UniqueConstraint(fields=('collection', 'task', 'repeat'), name='rollout_once'), models.CheckConstraint(condition=models.Q(('reward__isnull', True), ('status', 'completed'), _connector='OR'), name='rollout_reward_means_completed'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'failed'), models.Q(('error_kind', ''), _negated=True)), models.Q(models.Q(('status', 'failed'), _negated=True), ('error_kind', '')), _connector='OR'), name='rollout_failed_has_a_kind'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'completed'), _negated=True), models.Q(('stop_reason', ''), _negated=True), _connector='OR'), name='rollout_completed_has_a_stop_reason'), models.CheckConstraint(condition=models.Q(models.Q(('lease__isnull', False), ('status', 'running')), models.Q(models.Q(('status', 'running'), _negated=True), ('lease__isnull', True)), _connector='OR'), name='rollout_running_has_a_lease'), models.CheckConstraint(condition=models.Q(('reward__isnull', True), models.Q(('reward__gte', -1e+100), ('reward__lte', 1e+100)), _connector='OR'), name='rollout_reward_is_finite'), models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['completed', 'failed']), _negated=True), models.Q(('attempt__gte', 1), ('finished_at__isnull', False)), _connector='OR'), name='rollout_ended_was_attempted'), models.CheckConstraint(condition=models.Q(('status__in', ['queued', 'running', 'completed', 'failed', 'cancelled']), ('error_kind__in', ['', 'policy_error', 'environment_error', 'verifier_error', 'judge_error', 'agent_error', 'agent_lost', 'timed_out', 'worker_lost', 'cancelled']), ('stop_reason__in', ['', 'answered', 'environment_done', 'max_steps', 'max_output_tokens', 'context_length', 'content_filter', 'time_limit', 'token_limit', 'empty_reply'])), name='rollout_status_is_known')],
            },
        ),
        migrations.CreateModel(
            name='CollectionDeletion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('collection', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deletions', to='rollouts.collection')),
                ('chosen', models.JSONField(blank=True, default=dict)),
                ('name', models.CharField(max_length=220)),
                ('state', models.CharField(default='queued', max_length=16)),
                ('total', models.PositiveIntegerField(default=0)),
                ('deleted', models.PositiveIntegerField(default=0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('deleted_bytes', models.BigIntegerField(db_default=0, default=0)),
                ('deleted_events', models.BigIntegerField(db_default=0, default=0)),
                ('traces_only', models.BooleanField(db_default=False, default=False)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['queued', 'deleting'])), fields=('collection',), name='deletion_of_a_collection_once_at_a_time')],
            },
        ),
        migrations.CreateModel(
            name='KeptFigures',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('collection', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='kept_figures', to='rollouts.collection')),
                ('policy_model', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='kept_figures', to='policies.policymodel')),
                ('facets', models.JSONField(blank=True, default=list)),
                ('counted', models.CharField(blank=True, max_length=300)),
                ('content', models.TextField(blank=True)),
                ('seconds', models.FloatField(default=0.0)),
                ('measured_at', models.DateTimeField(blank=True, null=True)),
                ('wanted_at', models.DateTimeField(blank=True, null=True)),
                ('claimed_at', models.DateTimeField(blank=True, null=True)),
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
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reverifications', to='rollouts.collection')),
                ('filters', models.JSONField(blank=True, default=dict)),
                ('forced', models.BooleanField(default=False)),
                ('replays', models.BooleanField(default=False)),
                ('state', models.CharField(default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('total', models.PositiveIntegerField(default=0)),
                ('verified', models.PositiveIntegerField(default=0)),
                ('changed', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0)),
                ('applied', models.PositiveIntegerField(default=0)),
                ('stale', models.PositiveIntegerField(default=0)),
                ('cost', models.FloatField(default=0.0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='reverifications', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
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
                ('taken_at', models.DateTimeField(null=True)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['tries', 'taken_at'], name='unindexed_next')],
            },
        ),
        migrations.CreateModel(
            name='ReverifiedReward',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('reverification', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rewards', to='rollouts.reverification')),
                ('rollout', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reverified_rewards', to='rollouts.rollout')),
                ('attempt', models.PositiveSmallIntegerField()),
                ('old_status', models.CharField(max_length=16)),
                ('old_reward', models.FloatField(blank=True, null=True)),
                ('old_components', models.JSONField(blank=True, default=dict)),
                ('new_reward', models.FloatField(blank=True, null=True)),
                ('new_components', models.JSONField(blank=True, default=dict)),
                ('difference', models.FloatField(blank=True, null=True)),
                ('changed', models.BooleanField(default=False)),
                ('fate', models.CharField(blank=True, max_length=16)),
                ('stop_reason', models.CharField(blank=True, max_length=32)),
                ('answer', models.CharField(blank=True, max_length=200)),
                ('events', models.TextField(blank=True)),
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
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('rollout', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='words', to='rollouts.rollout')),
                ('part', models.PositiveSmallIntegerField(default=0)),
                ('attempt', models.PositiveSmallIntegerField()),
                ('document', apps.rollouts.models.words.DocumentField()),
                ('is_cut', models.BooleanField(default=False)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('rollout', 'part'), name='words_once_a_part')],
            },
        ),
        migrations.CreateModel(
            name='Throttle',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('policy_model', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='policies.policymodel')),
                ('environment', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='environments.environment')),
                ('control', models.JSONField(default=dict)),
                ('limited_until', models.DateTimeField(null=True)),
                ('paused_until', models.DateTimeField(null=True)),
                ('rate', models.FloatField(null=True)),
                ('concurrency', models.PositiveIntegerField(null=True)),
                ('retry_after', models.FloatField(null=True)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('quota_message', models.CharField(blank=True, max_length=500)),
                ('quota_at', models.DateTimeField(null=True)),
                ('limited_since', models.DateTimeField(null=True)),
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
                ('payload', apps.rollouts.trace_payloads.PayloadField()),
                ('tokens', models.BinaryField(null=True)),
            ],
            options={
                'ordering': ['attempt', 'seq'],
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('group', models.SlugField(blank=True, max_length=64)),
                ('seats', models.PositiveIntegerField()),
                ('busy', models.PositiveIntegerField(default=0)),
                ('backlog', models.PositiveIntegerField(default=0)),
                ('trouble', models.CharField(blank=True, max_length=500)),
                ('refuses', models.JSONField(blank=True, default=dict)),
                ('meters', models.JSONField(default=dict)),
                ('state', models.CharField(default='active', max_length=16)),
                ('started_at', models.DateTimeField(auto_now_add=True)),
                ('heartbeat_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('lease_expires_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('capture_address', models.CharField(blank=True, db_default='', default='', max_length=200)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['active', 'draining', 'stopped', 'lost']), ('seats__gte', 1)), name='worker_is_possible')],
            },
        ),
        migrations.CreateModel(
            name='Breaker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('policy_model', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='policies.policymodel')),
                ('environment', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='environments.environment')),
                ('state', models.CharField(default='closed', max_length=16)),
                ('failures', models.PositiveIntegerField(default=0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('opened_at', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('cooldown', models.FloatField(default=0.0)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('environment__isnull', False), ('policy_model__isnull', True)), models.Q(('environment__isnull', True), ('policy_model__isnull', False)), _connector='OR'), name='breaker_has_one_endpoint'), models.CheckConstraint(condition=models.Q(('state', 'closed'), models.Q(('opened_at__isnull', False), ('retry_at__isnull', False)), _connector='OR'), name='breaker_open_says_since_when'), models.CheckConstraint(condition=models.Q(('state__in', ['closed', 'open', 'half_open'])), name='breaker_state_is_known')],
            },
        ),
        migrations.CreateModel(
            name='FigureBlock',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('first', models.BigIntegerField()),
                ('last', models.BigIntegerField()),
                ('content', models.BinaryField(blank=True, default=b'')),
                ('claimed_at', models.DateTimeField(blank=True, null=True)),
                ('collection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='figure_blocks', to='rollouts.collection')),
            ],
            options={
                'ordering': ['collection', 'first'],
                'constraints': [models.UniqueConstraint(fields=('collection', 'first'), name='figure_block_once'), models.CheckConstraint(condition=models.Q(('first__gte', 0), ('last__gte', models.F('first'))), name='figure_block_is_possible')],
            },
        ),
        migrations.CreateModel(
            name='FigureMark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('span', models.BigIntegerField()),
                ('marked_at', models.DateTimeField()),
                ('collection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='figure_marks', to='rollouts.collection')),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['collection', 'span'], name='figure_marks_of')],
            },
        ),
        migrations.CreateModel(
            name='Reservation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('slots', models.PositiveIntegerField()),
                ('collection', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='rollouts.collection')),
                ('worker', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='rollouts.worker')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('worker', 'collection'), name='reservation_is_one')],
            },
        ),
        migrations.CreateModel(
            name='ServerMetrics',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('state', models.CharField(default='queued', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('key_metrics', models.JSONField(blank=True, default=dict)),
                ('agent_metrics', models.JSONField(blank=True, default=dict)),
                ('rewarded', models.PositiveIntegerField(default=0)),
                ('reward_sum', models.FloatField(default=0.0)),
                ('measured_at', models.DateTimeField(blank=True, null=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('collection', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='server_metrics', to='rollouts.collection')),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(condition=models.Q(('state__in', ['queued', 'computing'])), fields=['touched_at'], name='server_metrics_waiting')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'computing', 'ready', 'unsupported', 'failed'])), name='server_metrics_state_is_known')],
            },
        ),
        migrations.CreateModel(
            name='FailureCause',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('source', models.CharField(max_length=16)),
                ('text', models.CharField(max_length=300)),
                ('collection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='failure_causes', to='rollouts.collection')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('collection', 'source', 'text'), name='failure_cause_once'), models.CheckConstraint(condition=models.Q(('source__in', ['verifier', 'tool', 'error'])), name='failure_cause_source_is_known')],
            },
        ),
        migrations.CreateModel(
            name='RolloutCause',
            fields=[
                ('pk', models.CompositePrimaryKey('rollout_id', 'source', blank=True, editable=False, primary_key=True, serialize=False)),
                ('source', models.CharField(max_length=16)),
                ('cause', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='rollouts', to='rollouts.failurecause')),
                ('rollout', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='causes', to='rollouts.rollout')),
            ],
            options={
                'indexes': [models.Index(fields=['cause', 'rollout'], name='rollout_cause_page')],
            },
        ),
        migrations.CreateModel(
            name='Scan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('name', models.CharField(max_length=100)),
                ('question', models.TextField(max_length=4000)),
                ('kind', models.CharField(default='yes_no', max_length=16)),
                ('labels', models.JSONField(blank=True, default=list)),
                ('filter', models.CharField(blank=True, max_length=2000)),
                ('budget', models.FloatField()),
                ('max_characters', models.PositiveIntegerField()),
                ('structured_output', models.BooleanField(default=True)),
                ('state', models.CharField(default='draft', max_length=16)),
                ('total', models.PositiveIntegerField(default=0)),
                ('answered', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0)),
                ('estimated_cost', models.FloatField(default=0.0)),
                ('cost', models.FloatField(default=0.0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('touched_at', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='scans', to=settings.AUTH_USER_MODEL)),
                ('judge_model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='scans', to='policies.policymodel')),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['draft', 'running', 'paused', 'completed', 'cancelled']), ('kind__in', ['yes_no', 'label', 'number']), ('budget__gt', 0), ('budget__lte', 1000000000.0)), name='scan_is_possible')],
            },
        ),
        migrations.CreateModel(
            name='ScanAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('state', models.CharField(default='pending', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('answer', models.CharField(blank=True, max_length=100)),
                ('number', models.FloatField(blank=True, null=True)),
                ('reason', models.TextField(blank=True)),
                ('citations', models.JSONField(blank=True, default=list)),
                ('error', models.TextField(blank=True)),
                ('cost', models.FloatField(default=0.0)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('lease', models.BigIntegerField(blank=True, null=True)),
                ('leased_until', models.DateTimeField(blank=True, null=True)),
                ('rollout', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='scan_answers', to='rollouts.rollout')),
                ('scan', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='answers', to='rollouts.scan')),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['scan', 'answer', 'id'], name='scan_answer_page'), models.Index(condition=models.Q(('state', 'pending')), fields=['scan', 'tries', 'id'], name='scan_answer_pending'), models.Index(condition=models.Q(('state', 'failed')), fields=['scan', 'id'], name='scan_answer_failed')],
                'constraints': [models.UniqueConstraint(fields=('scan', 'rollout'), name='scan_answered_once'), models.CheckConstraint(condition=models.Q(models.Q(('answer', ''), ('error', ''), ('state', 'pending')), models.Q(('error', ''), ('state', 'answered'), models.Q(('answer', ''), _negated=True)), models.Q(('answer', ''), ('state', 'failed'), models.Q(('error', ''), _negated=True)), _connector='OR'), name='scan_answer_or_error')],
            },
        ),
        migrations.CreateModel(
            name='TraceImage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('collection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='rollouts.collection')),
                ('image', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tasks.storedimage')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('collection', 'image'), name='trace_image_once')],
            },
        ),
    ]

    operations = [
        CreateModels(tables),
        migrations.RunPython(add_search_statistics_and_functions, remove_search_and_functions),
    ]
