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
                ('failing_since', models.DateTimeField(blank=True, help_text='When transient errors began to interrupt it; null after progress', null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True)),
                ('name', models.CharField(blank=True, help_text='Made again under the same name, it is a new version', max_length=120)),
                ('version', models.PositiveIntegerField(default=1)),
                ('collection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pair_sets', to='rollouts.collection')),
                ('rule', models.JSONField(default=dict, help_text='As apps.gym.pairs.pair_rule.Rule')),
                ('rule_digest', models.CharField(blank=True, help_text="SHA-256 of the rule's settings", max_length=64)),
                ('margin', models.FloatField(default=0.1, help_text='chosen reward − rejected reward is at least this')),
                ('min_chosen_reward', models.FloatField(blank=True, help_text='Pair only if the better one is this good', null=True)),
                ('keeps_decisions', models.BooleanField(default=True, help_text='Decisions of the version before hold for its pairs')),
                ('state', models.CharField(choices=[('queued', 'queued'), ('making', 'making'), ('ready', 'ready'), ('failed', 'failed'), ('cancelled', 'cancelled')], default='ready', max_length=16)),
                ('attempt', models.PositiveSmallIntegerField(default=0, help_text='Claims so far: the fence against a lost worker')),
                ('total', models.PositiveIntegerField(default=0, help_text='Rollouts to look at')),
                ('considered', models.PositiveIntegerField(default=0, help_text='Of them, those looked at so far')),
                ('pair_count', models.PositiveIntegerField(default=0)),
                ('counts', models.JSONField(default=dict, help_text='Groups by what became of them: paired, or the reason why not')),
                ('excluded', models.JSONField(default=dict, help_text='Rollouts that were not used, by reason')),
                ('sources', models.JSONField(default=dict, help_text='Pairs by where the preference comes from')),
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
                ('margin', models.FloatField(blank=True, help_text='chosen − rejected, of the rewards that counted; empty where people chose', null=True)),
                ('source', models.CharField(choices=[('reward', 'reward gap'), ('override', 'overridden reward'), ('verdict', 'human verdict')], default='reward', max_length=16)),
                ('strength', models.PositiveSmallIntegerField(default=0, help_text='Of a verdict: 1 is better, 2 is much better')),
                ('reviewers', models.PositiveSmallIntegerField(default=0, help_text='Who judged the two; no adjudicator')),
                ('agreement', models.FloatField(blank=True, help_text='The share of them that said so', null=True)),
                ('adjudicated', models.BooleanField(default=False, help_text='An adjudicator said so, whatever reviewers did')),
                ('reviews', models.JSONField(blank=True, default=list, help_text='Ids of the reviews that the verdict was read in')),
                ('turn', models.PositiveIntegerField(blank=True, help_text='Of the level step: where the two part, from 0', null=True)),
                ('chosen_reward', models.FloatField(blank=True, help_text='What counted when the pair was made', null=True)),
                ('rejected_reward', models.FloatField(blank=True, null=True)),
                ('verifier_rewards', models.JSONField(blank=True, default=dict, help_text='Of sides whose reward was overridden: what the verifier gave')),
                ('chosen_length', models.PositiveIntegerField(default=0, help_text='Characters that the model wrote')),
                ('rejected_length', models.PositiveIntegerField(default=0)),
                ('same_answer', models.BooleanField(default=False, help_text='Both came to the same answer')),
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
                ('carried', models.BooleanField(default=False, help_text='Taken over from the version before')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.AddField(
            model_name='pairset',
            name='further',
            field=models.ManyToManyField(help_text='Collections beside the first', related_name='further_pair_sets', through='pairs.PairSource', to='rollouts.collection'),
        ),
    ]
