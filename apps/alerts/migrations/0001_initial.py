import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.alerts.migrations import REPLACED


class Migration(migrations.Migration):

    initial = True

    replaces = [('alerts', name) for name in REPLACED]

    dependencies = [
        ('accounts', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='Event',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=32)),
                ('key', models.CharField(max_length=200, unique=True)),
                ('text', models.CharField(max_length=500)),
                ('path', models.CharField(max_length=300)),
                ('data', models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='Subscription',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('name', models.CharField(max_length=100, unique=True)),
                ('channel', models.CharField(default='webhook', max_length=16)),
                ('address_encrypted', models.TextField(editable=False)),
                ('address_hint', models.CharField(editable=False, max_length=300)),
                ('secret_encrypted', models.TextField(blank=True, editable=False)),
                ('event_kinds', models.JSONField()),
                ('min_failure_share', models.FloatField(default=0.2)),
                ('min_reward_change', models.FloatField(default=0.05)),
                ('is_enabled', models.BooleanField(default=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('created_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('channel', 'webhook'), ('secret_encrypted__gt', '')), models.Q(('channel__in', ['slack', 'email']), ('secret_encrypted', '')), _connector='OR'), name='subscription_of_webhook_has_a_secret'), models.CheckConstraint(condition=models.Q(('min_failure_share__gt', 0), ('min_failure_share__lte', 1), ('min_reward_change__gte', 0), ('min_reward_change__lte', 1e+100)), name='subscription_thresholds_are_possible')],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('state', models.CharField(default='pending', max_length=16)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('next_attempt_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('retry_until', models.DateTimeField()),
                ('status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('delivered_at', models.DateTimeField(blank=True, null=True)),
                ('event', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='alerts.event')),
                ('subscription', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='alerts.subscription')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state', 'pending')), fields=['next_attempt_at'], name='delivery_pending')],
                'constraints': [models.UniqueConstraint(fields=('subscription', 'event'), name='delivery_once'), models.CheckConstraint(condition=models.Q(models.Q(('delivered_at__isnull', True), ('state__in', ['pending', 'failed'])), models.Q(('delivered_at__isnull', False), ('state', 'delivered')), _connector='OR'), name='delivery_state_is_known')],
            },
        ),
    ]

    operations = [CreateModels(tables)]
