#!/bin/sh
# Run once by the image of PostgreSQL, as its superuser: a role and a database for Dagster, and for the state store.
set -eu
for name in dagster state; do
    case $name in dagster) password=$DAGSTER_PASSWORD ;; state) password=$STATE_PASSWORD ;; esac
    psql --username "${POSTGRES_USER:-postgres}" --dbname postgres --set ON_ERROR_STOP=1 --set name="$name" --set password="$password" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
