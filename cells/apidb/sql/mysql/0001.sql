-- The API database before queued_for_delete. Times are microseconds since 1970, UTC.

CREATE TABLE cell_mappings (
    id BIGINT NOT NULL AUTO_INCREMENT,
    uuid VARCHAR(36) NOT NULL,
    name VARCHAR(255) NOT NULL,
    url VARCHAR(512) NOT NULL,
    disabled SMALLINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT cell_mappings_uuid UNIQUE (uuid),
    CONSTRAINT cell_mappings_name UNIQUE (name),
    CONSTRAINT cell_mappings_url UNIQUE (url)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE host_mappings (
    id BIGINT NOT NULL AUTO_INCREMENT,
    host VARCHAR(255) NOT NULL,
    cell_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT host_mappings_host UNIQUE (host),
    CONSTRAINT host_mappings_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX host_mappings_cell ON host_mappings (cell_id);

-- From a compute node, which is a root provider, to its host: what an allocation candidate has to be looked up with.
CREATE TABLE node_mappings (
    uuid VARCHAR(36) NOT NULL,
    name VARCHAR(255) NOT NULL,
    host_id BIGINT NOT NULL,
    PRIMARY KEY (uuid),
    CONSTRAINT node_mappings_host_id FOREIGN KEY (host_id) REFERENCES host_mappings (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX node_mappings_host ON node_mappings (host_id);

CREATE TABLE instance_mappings (
    id BIGINT NOT NULL AUTO_INCREMENT,
    instance_uuid VARCHAR(36) NOT NULL,
    cell_id BIGINT,
    project_id VARCHAR(255) NOT NULL,
    user_id VARCHAR(255),
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT instance_mappings_uuid UNIQUE (instance_uuid),
    CONSTRAINT instance_mappings_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX instance_mappings_project ON instance_mappings (project_id, cell_id);
-- This one pages through a cell in the order of ids.
CREATE INDEX instance_mappings_cell ON instance_mappings (cell_id, id);

CREATE TABLE request_specs (
    id BIGINT NOT NULL AUTO_INCREMENT,
    instance_uuid VARCHAR(36) NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    spec LONGTEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT request_specs_uuid UNIQUE (instance_uuid),
    CONSTRAINT request_specs_instance FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE build_requests (
    id BIGINT NOT NULL AUTO_INCREMENT,
    instance_uuid VARCHAR(36) NOT NULL,
    project_id VARCHAR(255) NOT NULL,
    created_at BIGINT NOT NULL,
    instance LONGTEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT build_requests_uuid UNIQUE (instance_uuid),
    CONSTRAINT build_requests_instance FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX build_requests_project ON build_requests (project_id, created_at DESC, instance_uuid);
CREATE INDEX build_requests_newest ON build_requests (created_at DESC, instance_uuid);

-- Refers to nothing: a claim outlives what it was for, until the reconciler has removed the allocations.
CREATE TABLE claims (
    instance_uuid VARCHAR(36) NOT NULL,
    node_uuid VARCHAR(36) NOT NULL,
    cell_uuid VARCHAR(36) NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (instance_uuid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE quotas (
    project_id VARCHAR(255) NOT NULL,
    resource VARCHAR(255) NOT NULL,
    hard_limit BIGINT NOT NULL,
    PRIMARY KEY (project_id, resource)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE flavors (
    id BIGINT NOT NULL AUTO_INCREMENT,
    flavorid VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    root_gb BIGINT NOT NULL,
    ephemeral_gb BIGINT NOT NULL,
    swap BIGINT NOT NULL,
    rxtx_factor DOUBLE PRECISION NOT NULL,
    is_public SMALLINT NOT NULL,
    disabled SMALLINT NOT NULL,
    description LONGTEXT,
    extra_specs LONGTEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT flavors_flavorid UNIQUE (flavorid),
    CONSTRAINT flavors_name UNIQUE (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
