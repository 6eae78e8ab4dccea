# One image for web and worker processes; compose.yaml says which is which. Nothing secret is in it.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 GYMWEB_VAR=/var/lib/gymweb
# bubblewrap is the sandbox for code that models write: docs/operate/sandbox.md says what a container must be allowed for it.
# postgresql-client has pg_dump and pg_restore for backups.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap postgresql-client && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --no-create-home --home-dir /var/lib/gymweb gymweb \
    && install --directory --owner=gymweb --mode=0700 /var/lib/gymweb
WORKDIR /app

COPY requirements.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check -r requirements.txt

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
# The exec form: signals reach Python, which drains.
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--port", "8000"]
