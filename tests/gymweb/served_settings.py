"""Settings of the small site that the serving tests run in a process of its own."""

import os

from gymweb.settings import *  # noqa: F403

ROOT_URLCONF = "tests.gymweb.served_site"
ASGI_APPLICATION = "tests.gymweb.served_site.application"
INSTALLED_APPS = ["channels", *(app for app in INSTALLED_APPS if app.startswith(("apps.", "gymweb", "django.")))]  # noqa: F405
LARGE_BODY_ROUTES = {"uploads", "copied-uploads"}
SILENCED_SYSTEM_CHECKS = ["gymweb.E003"]
"""The small site has no tables."""
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024**2
MAX_BODY_BYTES = int(os.environ.get("SERVED_MAX_BODY", "2000000000"))
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]
