import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '__first__'),
        ('environments', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ColumnMapping',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('mapping', models.JSONField()),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='column_mappings', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['name', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Dataset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField(blank=True)),
                ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='datasets', to='environments.environment')),
                ('last_number', models.PositiveIntegerField(default=0, help_text='Highest number of a deleted version')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='datasets', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['name', 'id'],
            },
        ),
        migrations.CreateModel(
            name='DatasetVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='tasks.dataset')),
                ('number', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('loading', 'loading'), ('ready', 'ready'), ('deleting', 'being deleted')], default='loading', max_length=16)),
                ('task_count', models.PositiveIntegerField(default=0)),
                ('content_hash', models.CharField(blank=True, help_text="SHA-256 of the task rows in order", max_length=64)),
                ('note', models.CharField(blank=True, max_length=200)),
                ('base', models.ForeignKey(blank=True, help_text='Previous version', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='tasks.datasetversion')),
                ('changes', models.JSONField(blank=True, default=dict, help_text='Row counts against the base: {new, updated, unchanged, removed}')),
                ('metrics', models.JSONField(blank=True, help_text='Dataset metrics (gym/tasks/dataset_metrics.py); null until computed', null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['-number'],
                'constraints': [models.UniqueConstraint(fields=('dataset', 'number'), name='dataset_version_number_once'), models.UniqueConstraint(condition=models.Q(('state', 'loading')), fields=('dataset',), name='dataset_version_loading_once')],
            },
        ),
        migrations.CreateModel(
            name='Deletion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('failing_since', models.DateTimeField(blank=True, help_text='When transient errors started; null after progress', null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True)),
                ('dataset', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deletions', to='tasks.dataset')),
                ('version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='tasks.datasetversion')),
                ('name', models.CharField(help_text='Name of the deleted object', max_length=120)),
                ('whole', models.BooleanField(help_text='Delete the dataset with all versions; otherwise one version')),
                ('state', models.CharField(choices=[('queued', 'waiting for a worker'), ('deleting', 'deleting'), ('done', 'done'), ('failed', 'failed')], default='queued', max_length=16)),
                ('total', models.PositiveIntegerField(default=0, help_text='Number of tasks')),
                ('deleted', models.PositiveIntegerField(default=0)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['queued', 'deleting'])), fields=('dataset',), name='deletion_of_a_dataset_once_at_a_time')],
            },
        ),
        migrations.CreateModel(
            name='Task',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='tasks.dataset')),
                ('version', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='tasks.datasetversion')),
                ('index', models.PositiveIntegerField(help_text='Position in the version, from 0')),
                ('external_id', models.CharField(blank=True, help_text="Id in the row, if any", max_length=200)),
                ('prompt_excerpt', models.CharField(blank=True, max_length=200)),
                ('row_json', models.TextField()),
                ('row_hash', models.CharField(blank=True, help_text='BLAKE2b of the row; empty until computed', max_length=32)),
                ('key', models.CharField(blank=True, help_text='Identity across versions: hash of the id, or of the row without one', max_length=32)),
                ('split', models.CharField(blank=True, help_text='train, validation, …', max_length=64)),
                ('tags_text', models.TextField(blank=True, help_text='Tags, each between line feeds, for searching')),
                ('is_retired', models.BooleanField(default=False, help_text='New collections skip it')),
            ],
            options={
                'ordering': ['version', 'index'],
                'indexes': [models.Index(fields=['version', 'id'], name='task_page'), models.Index(fields=['version', 'key'], name='task_key'), models.Index(condition=models.Q(('row_hash', ''), _negated=True), fields=['row_hash', 'dataset'], name='task_row'), models.Index(condition=models.Q(('split', ''), _negated=True), fields=['version', 'split', 'id'], name='task_split'), models.Index(condition=models.Q(('is_retired', True)), fields=['version', 'id'], name='task_retired')],
                'constraints': [models.UniqueConstraint(fields=('version', 'index'), name='task_index_once')],
            },
        ),
        migrations.CreateModel(
            name='Upload',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('failing_since', models.DateTimeField(blank=True, help_text='When transient errors started; null after progress', null=True)),
                ('retry_at', models.DateTimeField(blank=True, help_text='While queued after an error: the next attempt', null=True)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='uploads', to='tasks.dataset')),
                ('version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='uploads', to='tasks.datasetversion')),
                ('state', models.CharField(choices=[('receiving', 'receiving parts'), ('draft', 'waiting for its mapping'), ('queued', 'waiting for a worker'), ('loading', 'loading'), ('checked', 'checked'), ('ready', 'ready'), ('rejected', 'rejected'), ('failed', 'failed')], default='receiving', max_length=16)),
                ('on_error', models.CharField(choices=[('reject', 'Reject the whole file'), ('skip', 'Skip invalid rows')], default='reject', max_length=16)),
                ('mode', models.CharField(choices=[('replace', 'Replace all tasks'), ('upsert', "Merge into the latest version by id")], default='replace', max_length=16)),
                ('on_duplicate', models.CharField(choices=[('keep', 'Keep both'), ('skip', 'Keep the first'), ('reject', 'Reject the second')], default='keep', max_length=16)),
                ('mapping', models.JSONField(blank=True, help_text="Column mapping; null: detected from the first rows", null=True)),
                ('split', models.CharField(blank=True, help_text='Used for rows without a split', max_length=64)),
                ('split_ratios', models.JSONField(blank=True, default=dict, help_text='e.g. {"train": 0.9, "validation": 0.1}')),
                ('split_seed', models.BigIntegerField(default=0)),
                ('note', models.CharField(blank=True, max_length=200)),
                ('by_hand', models.BooleanField(default=False, help_text='A user maps the columns before loading')),
                ('check_only', models.BooleanField(default=False, help_text='Validate only')),
                ('format', models.CharField(blank=True, max_length=16)),
                ('packing', models.CharField(blank=True, max_length=16)),
                ('shape', models.CharField(blank=True, help_text="Detected row format", max_length=16)),
                ('filename', models.CharField(blank=True, max_length=255)),
                ('received_bytes', models.BigIntegerField(default=0)),
                ('read_bytes', models.BigIntegerField(default=0, help_text='Bytes read')),
                ('lines', models.PositiveIntegerField(default=0, help_text='Non-blank lines')),
                ('accepted', models.PositiveIntegerField(default=0)),
                ('rejected', models.PositiveIntegerField(default=0)),
                ('counts', models.JSONField(blank=True, default=dict, help_text='Counts of valid rows: {new, updated, unchanged, duplicate}, and {removed}')),
                ('errors', models.JSONField(default=list, help_text='The first invalid lines: [{line, pointer, code, message}]; all are in the rejected file')),
                ('over_limit', models.CharField(blank=True, help_text='The limit that rejected the file', max_length=64)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('attempt', models.PositiveIntegerField(default=0, help_text='Number of load attempts')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='uploads', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(auto_now=True, help_text='Last heartbeat; an unresponsive upload is taken over')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state__in', ['receiving', 'draft', 'queued', 'loading', 'checked'])), fields=['state', 'id'], name='upload_unfinished')],
            },
        ),
    ]
