import django.db.models.deletion
from django.db import migrations, models


def name_nouns(apps, editor):
    entries = apps.get_model("accounts", "AuditEntry").objects.using(editor.connection.alias)
    for action in set(entries.order_by().values_list("action", flat=True).distinct()):
        entries.filter(action=action).update(noun=action.partition(".")[0])


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0003_keymap'),
    ]

    operations = [
        migrations.AddField('auditentry', 'address', models.CharField(blank=True, max_length=64, default=''), preserve_default=False),
        migrations.AddField('auditentry', 'after', models.JSONField(blank=True, default=dict)),
        migrations.AddField('auditentry', 'api_key', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='accounts.apikey')),
        migrations.AddField('auditentry', 'before', models.JSONField(blank=True, default=dict)),
        migrations.AddField('auditentry', 'noun', models.CharField(default='', max_length=64), preserve_default=False),
        migrations.AddField('auditentry', 'origin', models.CharField(blank=True, default='', help_text='page, api, or the command', max_length=64), preserve_default=False),
        migrations.AddIndex('auditentry', models.Index(fields=['user', '-id'], name='audit_user')),
        migrations.AddIndex('auditentry', models.Index(fields=['noun', '-id'], name='audit_noun')),
        migrations.AddIndex('auditentry', models.Index(fields=['action', '-id'], name='audit_action')),
        migrations.AddIndex('auditentry', models.Index(fields=['at', '-id'], name='audit_at')),
        migrations.RunPython(name_nouns, migrations.RunPython.noop),
    ]
