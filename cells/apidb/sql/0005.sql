-- Host aggregates: hosts by name, whether they are mapped or not, and metadata, of which availability_zone names a zone.
CREATE TABLE aggregates (
    id $rowid $sqlite(AUTOINCREMENT),
    uuid $text(36) NOT NULL $sqlite(UNIQUE),
    name $text(255) NOT NULL $sqlite(UNIQUE),
    created_at $time NOT NULL,
    updated_at $time,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT aggregates_uuid UNIQUE (uuid)),
    $servers(CONSTRAINT aggregates_name UNIQUE (name)),
) $innodb;

CREATE TABLE aggregate_hosts (
    id $rowid,
    host $text(255) NOT NULL,
    aggregate_id $int NOT NULL $sqlite(REFERENCES aggregates (id) ON DELETE CASCADE),
    $sqlite(UNIQUE (host, aggregate_id)),
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT aggregate_hosts_host UNIQUE (host, aggregate_id)),
    $servers(CONSTRAINT aggregate_hosts_aggregate_id FOREIGN KEY (aggregate_id) REFERENCES aggregates (id) ON DELETE CASCADE),
) $innodb;
CREATE INDEX aggregate_hosts_aggregate ON aggregate_hosts (aggregate_id);

CREATE TABLE aggregate_metadata (
    aggregate_id $int NOT NULL $sqlite(REFERENCES aggregates (id) ON DELETE CASCADE),
    name $text(255) NOT NULL,
    value $text(255) NOT NULL,
    PRIMARY KEY (aggregate_id, name),
    $servers(CONSTRAINT aggregate_metadata_aggregate_id FOREIGN KEY (aggregate_id) REFERENCES aggregates (id) ON DELETE CASCADE),
) $sqlite(WITHOUT ROWID) $innodb;

-- Those that are deleted, until no provider in Placement is in them any more.
CREATE TABLE deleted_aggregates (
    uuid $text(36) NOT NULL $sqlite(PRIMARY KEY),
    $servers(PRIMARY KEY (uuid)),
) $sqlite(WITHOUT ROWID) $innodb;
