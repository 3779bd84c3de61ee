-- Host aggregates: hosts by name, whether they are mapped or not, and metadata, of which availability_zone names a zone.
CREATE TABLE aggregates (
    id BIGINT NOT NULL AUTO_INCREMENT,
    uuid VARCHAR(36) NOT NULL,
    name VARCHAR(255) NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT aggregates_uuid UNIQUE (uuid),
    CONSTRAINT aggregates_name UNIQUE (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE aggregate_hosts (
    id BIGINT NOT NULL AUTO_INCREMENT,
    host VARCHAR(255) NOT NULL,
    aggregate_id BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT aggregate_hosts_host UNIQUE (host, aggregate_id),
    CONSTRAINT aggregate_hosts_aggregate_id FOREIGN KEY (aggregate_id) REFERENCES aggregates (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX aggregate_hosts_aggregate ON aggregate_hosts (aggregate_id);

CREATE TABLE aggregate_metadata (
    aggregate_id BIGINT NOT NULL,
    name VARCHAR(255) NOT NULL,
    value VARCHAR(255) NOT NULL,
    PRIMARY KEY (aggregate_id, name),
    CONSTRAINT aggregate_metadata_aggregate_id FOREIGN KEY (aggregate_id) REFERENCES aggregates (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Those that are deleted, until no provider in Placement is in them any more.
CREATE TABLE deleted_aggregates (
    uuid VARCHAR(36) NOT NULL,
    PRIMARY KEY (uuid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
