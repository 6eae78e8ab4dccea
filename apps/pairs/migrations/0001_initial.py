import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('rollouts', '0001_initial'),
        ('tasks', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='PairSet',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('name', models.CharField(blank=True, max_length=120)),
                ('version', models.PositiveIntegerField(default=1)),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pair_sets', to='rollouts.collection')),
                ('rule', models.JSONField(default=dict)),
                ('rule_digest', models.CharField(blank=True, max_length=64)),
                ('margin', models.FloatField(default=0.1)),
                ('min_chosen_reward', models.FloatField(blank=True, null=True)),
                ('keeps_decisions', models.BooleanField(default=True)),
                ('state', models.CharField(default='ready', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0)),
                ('total', models.PositiveIntegerField(default=0)),
                ('considered', models.PositiveIntegerField(default=0)),
                ('pair_count', models.PositiveIntegerField(default=0)),
                ('counts', models.JSONField(default=dict)),
                ('excluded', models.JSONField(default=dict)),
                ('sources', models.JSONField(default=dict)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='pair_sets', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('further', models.ManyToManyField(related_name='further_pair_sets', through='pairs.PairSource', to='rollouts.collection')),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('name', ''), _negated=True), fields=('name', 'version'), name='pair_set_version_once'), models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'making', 'ready', 'failed', 'cancelled'])), name='pair_set_state_is_known')],
            },
        ),
        migrations.CreateModel(
            name='PairSource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('pair_set', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='pairs.pairset')),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pair_sources', to='rollouts.collection')),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('pair_set', 'collection'), name='pair_source_once')],
            },
        ),
        migrations.CreateModel(
            name='PreferencePair',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('pair_set', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pairs', to='pairs.pairset')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pairs', to='tasks.task')),
                ('chosen', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pairs_as_chosen', to='rollouts.rollout')),
                ('rejected', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pairs_as_rejected', to='rollouts.rollout')),
                ('margin', models.FloatField(blank=True, null=True)),
                ('source', models.CharField(default='reward', max_length=16)),
                ('strength', models.PositiveSmallIntegerField(default=0)),
                ('reviewers', models.PositiveSmallIntegerField(default=0)),
                ('agreement', models.FloatField(blank=True, null=True)),
                ('adjudicated', models.BooleanField(default=False)),
                ('reviews', models.JSONField(blank=True, default=list)),
                ('turn', models.PositiveIntegerField(blank=True, null=True)),
                ('chosen_reward', models.FloatField(blank=True, null=True)),
                ('rejected_reward', models.FloatField(blank=True, null=True)),
                ('verifier_rewards', models.JSONField(blank=True, default=dict)),
                ('chosen_length', models.PositiveIntegerField(default=0)),
                ('rejected_length', models.PositiveIntegerField(default=0)),
                ('same_answer', models.BooleanField(default=False)),
                ('status', models.CharField(default='proposed', max_length=16)),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['pair_set', 'status', 'id'], name='pair_status'), models.Index(fields=['pair_set', 'task', 'id'], name='pair_of_task')],
                'constraints': [models.UniqueConstraint(fields=('pair_set', 'chosen', 'rejected'), name='pair_once'), models.CheckConstraint(condition=models.Q(('chosen', models.F('rejected')), _negated=True), name='pair_of_two'), models.CheckConstraint(condition=models.Q(models.Q(('margin__isnull', True), ('source', 'verdict')), models.Q(models.Q(('source', 'verdict'), _negated=True), ('margin__gt', 0), ('margin__isnull', False)), _connector='OR'), name='pair_margin_is_of_rewards'), models.CheckConstraint(condition=models.Q(('source__in', ['reward', 'override', 'verdict']), ('status__in', ['proposed', 'accepted', 'rejected'])), name='pair_words_are_known')],
            },
        ),
        migrations.CreateModel(
            name='PairDecision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('pair', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='pairs.preferencepair')),
                ('status', models.CharField(max_length=16)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='pair_decisions', to=settings.AUTH_USER_MODEL)),
                ('carried', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['id'],
            },
        ),
    ]

    operations = [CreateModels(tables)]
