"""Disk use in bytes: database, export files and free space."""

import shutil
from dataclasses import dataclass

from django.conf import settings
from django.db import connection
from django.db.models import Sum

from apps.accounts.disk_space import reserve_of
from apps.exports.models import Export

_DATABASE = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}


@dataclass(frozen=True, slots=True)
class Disk:
    """`used` and `free` describe the volume of GYMWEB_VAR; a database server may have another volume."""

    database: int
    exports: int
    used: int
    free: int

    @property
    def is_low(self) -> bool:
        """Return True below twice the reserve at which uploads are rejected and jobs wait."""
        return self.free < 2 * reserve_of(self.used + self.free)


def read_disk() -> Disk:
    with connection.cursor() as cursor:
        cursor.execute(_DATABASE[connection.vendor])
        (database,) = cursor.fetchone()
    exported = Export.objects.filter(state=Export.State.READY).aggregate(total=Sum("bytes", default=0))["total"]
    volume = shutil.disk_usage(settings.VAR_DIR)
    return Disk(database=database, exports=exported, used=volume.used, free=volume.free)
