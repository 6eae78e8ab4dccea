import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from apps.accounts.migrations._create_models import CreateModels
from apps.tasks.migrations import REPLACED


class Migration(migrations.Migration):

    initial = True

    replaces = [('tasks', name) for name in REPLACED]

    dependencies = [
        ('accounts', '0001_initial'),
        ('environments', '0001_initial'),
    ]

    tables = [
        migrations.CreateModel(
            name='ColumnMapping',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
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
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField(blank=True)),
                ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='datasets', to='environments.environment')),
                ('last_number', models.PositiveIntegerField(default=0)),
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
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='tasks.dataset')),
                ('number', models.PositiveIntegerField()),
                ('state', models.CharField(default='loading', max_length=16)),
                ('task_count', models.PositiveIntegerField(default=0)),
                ('content_hash', models.CharField(blank=True, max_length=64)),
                ('note', models.CharField(blank=True, max_length=200)),
                ('base', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='tasks.datasetversion')),
                ('changes', models.JSONField(blank=True, default=dict)),
                ('metrics', models.JSONField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('final_newline', models.BooleanField(db_default=True, default=True)),
                ('gold_check', models.JSONField(blank=True, null=True)),
                ('gold_next', models.PositiveIntegerField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-number'],
                'constraints': [models.UniqueConstraint(fields=('dataset', 'number'), name='dataset_version_number_once'), models.UniqueConstraint(condition=models.Q(('state', 'loading')), fields=('dataset',), name='dataset_version_loading_once')],
                'indexes': [models.Index(condition=models.Q(('gold_next__isnull', False)), fields=['id'], name='dataset_version_gold')],
            },
        ),
        migrations.CreateModel(
            name='Deletion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('dataset', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deletions', to='tasks.dataset')),
                ('version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='tasks.datasetversion')),
                ('name', models.CharField(max_length=120)),
                ('whole', models.BooleanField()),
                ('state', models.CharField(default='queued', max_length=16)),
                ('total', models.PositiveIntegerField(default=0)),
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
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='tasks.dataset')),
                ('version', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='tasks', to='tasks.datasetversion')),
                ('index', models.PositiveIntegerField()),
                ('external_id', models.CharField(blank=True, max_length=200)),
                ('prompt_excerpt', models.CharField(blank=True, max_length=200)),
                ('row_json', models.TextField()),
                ('row_hash', models.CharField(blank=True, max_length=32)),
                ('key', models.CharField(blank=True, max_length=32)),
                ('split', models.CharField(blank=True, max_length=64)),
                ('tags_text', models.TextField(blank=True)),
                ('is_retired', models.BooleanField(default=False)),
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
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='uploads', to='tasks.dataset')),
                ('version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='uploads', to='tasks.datasetversion')),
                ('state', models.CharField(default='receiving', max_length=16)),
                ('on_error', models.CharField(default='reject', max_length=16)),
                ('mode', models.CharField(default='replace', max_length=16)),
                ('on_duplicate', models.CharField(default='keep', max_length=16)),
                ('mapping', models.JSONField(blank=True, null=True)),
                ('split', models.CharField(blank=True, max_length=64)),
                ('split_ratios', models.JSONField(blank=True, default=dict)),
                ('split_seed', models.BigIntegerField(default=0)),
                ('note', models.CharField(blank=True, max_length=200)),
                ('by_hand', models.BooleanField(default=False)),
                ('check_only', models.BooleanField(default=False)),
                ('format', models.CharField(blank=True, max_length=16)),
                ('packing', models.CharField(blank=True, max_length=16)),
                ('shape', models.CharField(blank=True, max_length=16)),
                ('filename', models.CharField(blank=True, max_length=255)),
                ('received_bytes', models.BigIntegerField(default=0)),
                ('read_bytes', models.BigIntegerField(default=0)),
                ('lines', models.PositiveIntegerField(default=0)),
                ('accepted', models.PositiveIntegerField(default=0)),
                ('rejected', models.PositiveIntegerField(default=0)),
                ('counts', models.JSONField(blank=True, default=dict)),
                ('errors', models.JSONField(default=list)),
                ('over_limit', models.CharField(blank=True, max_length=64)),
                ('message', models.CharField(blank=True, max_length=500)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='uploads', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('touched_at', models.DateTimeField(auto_now=True)),
                ('on_credential', models.CharField(db_default='keep', default='keep', max_length=16)),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state__in', ['receiving', 'draft', 'queued', 'loading', 'checked'])), fields=['state', 'id'], name='upload_unfinished')],
            },
        ),
        migrations.CreateModel(
            name='Suite',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('slug', models.SlugField(max_length=64, unique=True)),
                ('name', models.CharField(max_length=100)),
            ],
            options={
                'ordering': ['name', 'id'],
            },
        ),
        migrations.CreateModel(
            name='SuiteDataset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('position', models.PositiveSmallIntegerField()),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='suite_entries', to='tasks.dataset')),
                ('suite', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='tasks.suite')),
            ],
            options={
                'ordering': ['position'],
                'constraints': [models.UniqueConstraint(fields=('suite', 'dataset'), name='suite_dataset_once'), models.UniqueConstraint(fields=('suite', 'position'), name='suite_position_once')],
            },
        ),
        migrations.CreateModel(
            name='StoredImage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('sha256', models.CharField(max_length=64, unique=True)),
                ('kind', models.CharField(max_length=16)),
                ('width', models.PositiveIntegerField()),
                ('height', models.PositiveIntegerField()),
                ('size', models.PositiveIntegerField()),
                ('content', models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name='VersionImage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('image', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tasks.storedimage')),
                ('version', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='images', to='tasks.datasetversion')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('version', 'image'), name='version_image_once')],
            },
        ),
    ]

    operations = [CreateModels(tables)]
