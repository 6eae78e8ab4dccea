from apps.tasks.models.tasks import (
    Dataset,
    DatasetVersion,
    StoredImage,
    Suite,
    SuiteDataset,
    SuiteQuerySet,
    Task,
    TaskQuerySet,
    VersionImage,
    join_tags,
)
from apps.tasks.models.uploads import ColumnMapping, Deletion, Upload

__all__ = [
    "ColumnMapping",
    "Dataset",
    "DatasetVersion",
    "Deletion",
    "StoredImage",
    "Suite",
    "SuiteDataset",
    "SuiteQuerySet",
    "Task",
    "TaskQuerySet",
    "Upload",
    "VersionImage",
    "join_tags",
]
