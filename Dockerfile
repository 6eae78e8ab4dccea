# One image for web and worker processes; compose.yaml says which is which. Nothing secret is in it.
# Another base needs Debian's packages, Python 3.11 or newer, and the commands `python` and `pip`.
# Debian 13 has pg_dump 17, which can back up the PostgreSQL 17 of compose.yaml.
ARG BASE=python:3.12-slim-trixie
FROM ${BASE}

ENV PYTHONUNBUFFERED=1 GYMWEB_VAR=/var/lib/gymweb
# bubblewrap is the sandbox for code that models write: docs/operate/sandbox.md says what a container must be allowed for it.
# postgresql-client has pg_dump and pg_restore for backups.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap postgresql-client && rm -rf /var/lib/apt/lists/*
RUN groupadd --system --gid 10001 gymweb \
    && useradd --system --uid 10001 --gid gymweb --no-create-home --home-dir /var/lib/gymweb gymweb \
    && install --directory --owner=gymweb --mode=0700 /var/lib/gymweb
WORKDIR /app

COPY requirements.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check -r requirements.txt
# Optional packages, separated by spaces, for example those of OpenTelemetry.
ARG EXTRA_PACKAGES=""
RUN test -z "$EXTRA_PACKAGES" \
    || pip install --no-cache-dir --disable-pip-version-check -c requirements.txt $EXTRA_PACKAGES

COPY manage.py pyproject.toml ./
COPY apps apps
COPY gymweb gymweb
COPY static static
COPY templates templates
# The key is for this step alone: settings want one, and nothing made here depends on it.
RUN GYMWEB_VAR=/tmp/collecting GYMWEB_SECRET_KEY=for-collecting-static-files-only-0 \
    python manage.py collectstatic --no-input && rm -r /tmp/collecting && python -m compileall -q apps gymweb

USER gymweb
EXPOSE 8000
# Of the web process: compose.yaml has the same, and turns it off for workers.
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=8)"]
# The exec form: signals reach Python, which drains.
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--port", "8000"]
