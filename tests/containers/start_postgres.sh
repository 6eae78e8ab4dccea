#!/bin/sh
# Create the database on first use, then run PostgreSQL as its own user.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }

install --directory --owner postgres --mode 0700 "$data"
if [ ! -s "$data/PG_VERSION" ]; then
  password=$(mktemp)
  printf %s "$POSTGRES_PASSWORD" > "$password"
  chown postgres "$password"
  as_postgres "$bin/initdb" --pgdata "$data" --username "$POSTGRES_USER" --pwfile "$password" --auth scram-sha-256 --encoding UTF8
  rm "$password"
  echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | as_postgres "$bin/postgres" --single -j -D "$data" postgres
fi
exec setpriv --reuid postgres --regid postgres --init-groups "$bin/postgres" -D "$data" -c 'listen_addresses=*'
