import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.reviews.migrations import REPLACED


class Migration(migrations.Migration):

    initial = True

    replaces = [('reviews', name) for name in REPLACED]

    dependencies = [
        ('accounts', '0001_initial'),
        ('rollouts', '0001_initial'),
        ('tasks', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='RewardOverride',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('rollout', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reward_overrides', to='rollouts.rollout')),
                ('reward', models.FloatField()),
                ('original_reward', models.FloatField(null=True)),
                ('reason', models.CharField(max_length=2000)),
                ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='reward_overrides', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('ended_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('ended_how', models.CharField(blank=True, default='', max_length=16)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('rollout',), name='override_stands_once'), models.CheckConstraint(condition=models.Q(('reward__gte', -1e+100), ('reward__lte', 1e+100)), name='override_reward_is_finite'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('ended_how', '')), models.Q(('ended_at__isnull', False), ('ended_how__in', ['replaced', 'withdrawn'])), _connector='OR'), name='override_ended_says_how')],
            },
        ),
        migrations.CreateModel(
            name='Rubric',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField(blank=True, max_length=4000)),
                ('criteria', models.JSONField(default=list)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='rubrics', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['slug'],
            },
        ),
        migrations.CreateModel(
            name='Queue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=150)),
                ('kind', models.CharField(max_length=16)),
                ('rubric', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='queues', to='reviews.rubric')),
                ('instructions', models.TextField(blank=True, max_length=20000)),
                ('overlap', models.PositiveSmallIntegerField(default=1)),
                ('order', models.CharField(default='random', max_length=16)),
                ('seed', models.BigIntegerField(default=0)),
                ('lease_minutes', models.PositiveSmallIntegerField(default=15)),
                ('shows_expected', models.BooleanField(default=False)),
                ('shows_reward', models.BooleanField(default=False)),
                ('shows_model', models.BooleanField(default=False)),
                ('reveals', models.BooleanField(default=False)),
                ('repeat_share', models.FloatField(default=0.0)),
                ('named_reviewers', models.BooleanField(default=False)),
                ('source', models.JSONField(blank=True, default=dict)),
                ('item_count', models.PositiveIntegerField(default=0)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='queues', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('kind', 'rubric'), ('rubric__isnull', False)), ('kind__in', ['pairwise', 'ranking']), _connector='OR'), name='queue_of_rubric_has_one'), models.CheckConstraint(condition=models.Q(('overlap__gte', 1), ('overlap__lte', 20), ('lease_minutes__gte', 1), ('lease_minutes__lte', 240), ('repeat_share__gte', 0.0), ('repeat_share__lte', 0.5), ('order__in', ['random', 'disagreement', 'newest'])), name='queue_is_possible')],
            },
        ),
        migrations.CreateModel(
            name='QueueItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('queue', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='reviews.queue')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tasks.task')),
                ('size', models.PositiveSmallIntegerField()),
                ('shuffle', models.BigIntegerField()),
                ('doubt', models.FloatField(default=0.0)),
                ('is_repeated', models.BooleanField(default=False)),
                ('done', models.PositiveSmallIntegerField(default=0)),
                ('is_adjudicated', models.BooleanField(default=False)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['queue', 'shuffle'], name='item_random'), models.Index(fields=['queue', '-doubt', 'shuffle'], name='item_doubtful')],
                'constraints': [models.CheckConstraint(condition=models.Q(('size__gte', 1), ('size__lte', 6)), name='item_has_one_to_six')],
            },
        ),
        migrations.CreateModel(
            name='ItemRollout',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('item', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='reviews.queueitem')),
                ('rollout', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='queue_entries', to='rollouts.rollout')),
                ('place', models.PositiveSmallIntegerField()),
            ],
            options={
                'ordering': ['item', 'place'],
                'constraints': [models.UniqueConstraint(fields=('item', 'place'), name='item_place_once'), models.UniqueConstraint(fields=('item', 'rollout'), name='item_rollout_once')],
            },
        ),
        migrations.CreateModel(
            name='QueueReviewer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('queue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reviewers', to='reviews.queue')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('queue', 'user'), name='queue_reviewer_once')],
            },
        ),
        migrations.CreateModel(
            name='Review',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('queue', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='reviews', to='reviews.queue')),
                ('item', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='reviews', to='reviews.queueitem')),
                ('rollout', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='reviews', to='rollouts.rollout')),
                ('seq', models.PositiveIntegerField(blank=True, null=True)),
                ('rubric', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='reviews', to='reviews.rubric')),
                ('reviewer', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='reviews', to=settings.AUTH_USER_MODEL)),
                ('status', models.CharField(default='open', max_length=16)),
                ('slot', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('repeat_of', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='repeats', to='reviews.review')),
                ('is_adjudication', models.BooleanField(default=False)),
                ('saw_votes', models.BooleanField(blank=True, null=True)),
                ('arrangement', models.JSONField(default=list)),
                ('is_swapped', models.BooleanField(default=False)),
                ('leased_until', models.DateTimeField(blank=True, null=True)),
                ('draft', models.JSONField(blank=True, default=dict)),
                ('token', models.CharField(blank=True, default='', max_length=64)),
                ('scores', models.JSONField(blank=True, default=dict)),
                ('choice', models.CharField(blank=True, default='', max_length=16)),
                ('ranks', models.JSONField(blank=True, default=list)),
                ('reasons', models.JSONField(blank=True, default=list)),
                ('note', models.TextField(blank=True, default='', max_length=10000)),
                ('confidence', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('skip_reason', models.CharField(blank=True, default='', max_length=500)),
                ('started_at', models.DateTimeField(auto_now_add=True)),
                ('submitted_at', models.DateTimeField(blank=True, null=True)),
                ('skipped_at', models.DateTimeField(blank=True, null=True)),
                ('seconds', models.FloatField(blank=True, null=True)),
                ('could_see_results', models.BooleanField(default=False)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['queue', 'reviewer', 'status'], name='review_of_reviewer')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('slot__isnull', False), ('status__in', ['open', 'submitted'])), fields=('item', 'slot'), name='review_slot_once'), models.UniqueConstraint(condition=models.Q(('is_adjudication', False), ('repeat_of__isnull', True)), fields=('item', 'reviewer'), name='review_item_once'), models.UniqueConstraint(fields=('repeat_of',), name='review_repeated_once'), models.UniqueConstraint(condition=models.Q(('is_adjudication', True), ('status', 'submitted')), fields=('item',), name='review_adjudicated_once'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'open'), _negated=True), ('leased_until__isnull', False), _connector='OR'), name='review_open_is_leased'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'submitted'), _negated=True), ('submitted_at__isnull', False), _connector='OR'), name='review_submitted_says_when'), models.CheckConstraint(condition=models.Q(models.Q(('item__isnull', False), ('queue__isnull', False)), models.Q(('item__isnull', True), ('queue__isnull', True), ('rollout__isnull', False), ('rubric__isnull', False)), _connector='OR'), name='review_is_about_something'), models.CheckConstraint(condition=models.Q(('confidence__isnull', True), models.Q(('confidence__gte', 1), ('confidence__lte', 3)), _connector='OR'), name='review_confidence_is_known'), models.CheckConstraint(condition=models.Q(('status__in', ['open', 'submitted', 'skipped', 'lapsed', 'replaced']), ('choice__in', ['', 'a_much', 'a', 'equal', 'both_bad', 'b', 'b_much'])), name='review_status_is_known')],
            },
        ),
        migrations.CreateModel(
            name='PairVerdict',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('review', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='verdicts', to='reviews.review')),
                ('low', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='verdicts_as_low', to='rollouts.rollout')),
                ('high', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='verdicts_as_high', to='rollouts.rollout')),
                ('outcome', models.CharField(max_length=16)),
                ('strength', models.PositiveSmallIntegerField(default=0)),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('review', 'low', 'high'), name='verdict_once'), models.CheckConstraint(condition=models.Q(('low__lt', models.F('high'))), name='verdict_of_two_in_order'), models.CheckConstraint(condition=models.Q(models.Q(('outcome__in', ['low', 'high']), ('strength__in', [1, 2])), models.Q(('outcome__in', ['equal', 'both_bad']), ('strength', 0)), _connector='OR'), name='verdict_has_its_strength')],
            },
        ),
        migrations.CreateModel(
            name='Comment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('rollout', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comments', to='rollouts.rollout')),
                ('seq', models.PositiveIntegerField(blank=True, null=True)),
                ('quote', models.TextField(blank=True, default='', max_length=2000)),
                ('start', models.PositiveIntegerField(blank=True, null=True)),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='replies', to='reviews.comment')),
                ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='comments', to=settings.AUTH_USER_MODEL)),
                ('text', models.TextField(max_length=10000)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('resolved_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('quote', ''), ('seq__isnull', False), _connector='OR'), name='comment_quote_has_an_event')],
            },
        ),
        migrations.CreateModel(
            name='Flag',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('rollout', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='review_flags', to='rollouts.rollout')),
                ('seq', models.PositiveIntegerField(blank=True, null=True)),
                ('kind', models.CharField(max_length=32)),
                ('note', models.CharField(blank=True, default='', max_length=1000)),
                ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='review_flags', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('withdrawn_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('seq__isnull', True), ('withdrawn_at__isnull', True)), fields=('rollout', 'kind', 'author'), name='flag_once'), models.UniqueConstraint(condition=models.Q(('seq__isnull', False), ('withdrawn_at__isnull', True)), fields=('rollout', 'kind', 'author', 'seq'), name='flag_once_a_step')],
            },
        ),
    ]

    operations = [CreateModels(tables)]
