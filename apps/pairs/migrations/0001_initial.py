import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '__first__'),
        ('rollouts', '0001_initial'),
        ('tasks', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='PairSet',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('failing_since', models.DateTimeField(blank=True, help_text='When transient errors started; null after progress', null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True)),
                ('name', models.CharField(blank=True, help_text='Sets with the same name are versions', max_length=120)),
                ('version', models.PositiveIntegerField(default=1)),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pair_sets', to='rollouts.collection')),
                ('rule', models.JSONField(default=dict, help_text='Fields of apps.gym.pairs.pair_rule.Rule')),
                ('rule_digest', models.CharField(blank=True, help_text="SHA-256 of the rule's settings", max_length=64)),
                ('margin', models.FloatField(default=0.1, help_text='chosen reward − rejected reward is at least this')),
                ('min_chosen_reward', models.FloatField(blank=True, help_text='Minimum reward of the chosen rollout', null=True)),
                ('keeps_decisions', models.BooleanField(default=True, help_text='Keep decisions of the previous version')),
                ('state', models.CharField(choices=[('queued', 'queued'), ('making', 'building'), ('ready', 'ready'), ('failed', 'failed'), ('cancelled', 'cancelled')], default='ready', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0, help_text='Number of claims, used as a fencing token')),
                ('total', models.PositiveIntegerField(default=0, help_text='Number of rollouts to check')),
                ('considered', models.PositiveIntegerField(default=0, help_text='Number checked so far')),
                ('pair_count', models.PositiveIntegerField(default=0)),
                ('counts', models.JSONField(default=dict, help_text='Number of groups by outcome')),
                ('excluded', models.JSONField(default=dict, help_text='Unused rollouts by reason')),
                ('sources', models.JSONField(default=dict, help_text='Number of pairs by source')),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='pair_sets', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Last heartbeat of the worker that builds it')),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('name', ''), _negated=True), fields=('name', 'version'), name='pair_set_version_once'), models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'making', 'ready', 'failed', 'cancelled'])), name='pair_set_state_is_known')],
            },
        ),
        migrations.CreateModel(
            name='PairSource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('pair_set', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='pairs.pairset')),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pair_sources', to='rollouts.collection')),
            ],
            options={
                'verbose_name': 'pair set',
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('pair_set', 'collection'), name='pair_source_once')],
            },
        ),
        migrations.CreateModel(
            name='PreferencePair',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('pair_set', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pairs', to='pairs.pairset')),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pairs', to='tasks.task')),
                ('chosen', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pairs_as_chosen', to='rollouts.rollout')),
                ('rejected', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pairs_as_rejected', to='rollouts.rollout')),
                ('margin', models.FloatField(blank=True, help_text='Chosen reward − rejected reward; empty for verdicts', null=True)),
                ('source', models.CharField(choices=[('reward', 'reward difference'), ('override', 'overridden reward'), ('verdict', 'human verdict')], default='reward', max_length=16)),
                ('strength', models.PositiveSmallIntegerField(default=0, help_text='Strength of a verdict: 1 better, 2 much better')),
                ('reviewers', models.PositiveSmallIntegerField(default=0, help_text='Number of reviewers, without adjudicator')),
                ('agreement', models.FloatField(blank=True, help_text='Share of reviewers who agree', null=True)),
                ('adjudicated', models.BooleanField(default=False, help_text='True if the verdict is an adjudication')),
                ('reviews', models.JSONField(blank=True, default=list, help_text='Ids of the reviews behind the verdict')),
                ('turn', models.PositiveIntegerField(blank=True, help_text='Level step: diverging turn, from 0', null=True)),
                ('chosen_reward', models.FloatField(blank=True, help_text='Rewards used for the pair', null=True)),
                ('rejected_reward', models.FloatField(blank=True, null=True)),
                ('verifier_rewards', models.JSONField(blank=True, default=dict, help_text='Verifier rewards of overridden sides')),
                ('chosen_length', models.PositiveIntegerField(default=0, help_text='Characters written by the model')),
                ('rejected_length', models.PositiveIntegerField(default=0)),
                ('same_answer', models.BooleanField(default=False, help_text='Same final answer')),
                ('status', models.CharField(choices=[('proposed', 'proposed'), ('accepted', 'accepted'), ('rejected', 'rejected')], default='proposed', max_length=16)),
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
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('pair', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='pairs.preferencepair')),
                ('status', models.CharField(choices=[('proposed', 'proposed'), ('accepted', 'accepted'), ('rejected', 'rejected')], max_length=16)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='pair_decisions', to=settings.AUTH_USER_MODEL)),
                ('carried', models.BooleanField(default=False, help_text='Carried over from the previous version')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.AddField(
            model_name='pairset',
            name='further',
            field=models.ManyToManyField(help_text='Additional collections', related_name='further_pair_sets', through='pairs.PairSource', to='rollouts.collection'),
        ),
    ]
