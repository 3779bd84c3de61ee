-- Host aggregates: hosts by name, whether they are mapped or not, and metadata, of which availability_zone names a zone.
CREATE TABLE aggregates (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    updated_at INTEGER
);

CREATE TABLE aggregate_hosts (
    id INTEGER NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    aggregate_id INTEGER NOT NULL REFERENCES aggregates (id) ON DELETE CASCADE,
    UNIQUE (host, aggregate_id)
);
CREATE INDEX aggregate_hosts_aggregate ON aggregate_hosts (aggregate_id);

CREATE TABLE aggregate_metadata (
    aggregate_id INTEGER NOT NULL REFERENCES aggregates (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (aggregate_id, name)
) WITHOUT ROWID;

-- Those that are deleted, until no provider in Placement is in them any more.
CREATE TABLE deleted_aggregates (
    uuid TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;
