-- Host aggregates: hosts by name, whether they are mapped or not, and metadata, of which availability_zone names a zone.
CREATE TABLE aggregates (
    id BIGSERIAL NOT NULL,
    uuid VARCHAR(36) COLLATE "C" NOT NULL,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT aggregates_uuid UNIQUE (uuid),
    CONSTRAINT aggregates_name UNIQUE (name)
);

CREATE TABLE aggregate_hosts (
    id BIGSERIAL NOT NULL,
    host VARCHAR(255) COLLATE "C" NOT NULL,
    aggregate_id BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT aggregate_hosts_host UNIQUE (host, aggregate_id),
    CONSTRAINT aggregate_hosts_aggregate_id FOREIGN KEY (aggregate_id) REFERENCES aggregates (id) ON DELETE CASCADE
);
CREATE INDEX aggregate_hosts_aggregate ON aggregate_hosts (aggregate_id);

CREATE TABLE aggregate_metadata (
    aggregate_id BIGINT NOT NULL,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    value VARCHAR(255) COLLATE "C" NOT NULL,
    PRIMARY KEY (aggregate_id, name),
    CONSTRAINT aggregate_metadata_aggregate_id FOREIGN KEY (aggregate_id) REFERENCES aggregates (id) ON DELETE CASCADE
);

-- Those that are deleted, until no provider in Placement is in them any more.
CREATE TABLE deleted_aggregates (
    uuid VARCHAR(36) COLLATE "C" NOT NULL,
    PRIMARY KEY (uuid)
);
