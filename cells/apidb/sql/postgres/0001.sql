-- The API database before queued_for_delete. Times are microseconds since 1970, UTC. Texts are ordered by their bytes.

CREATE TABLE cell_mappings (
    id BIGSERIAL NOT NULL,
    uuid VARCHAR(36) COLLATE "C" NOT NULL,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    url VARCHAR(512) COLLATE "C" NOT NULL,
    disabled SMALLINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT cell_mappings_uuid UNIQUE (uuid),
    CONSTRAINT cell_mappings_name UNIQUE (name),
    CONSTRAINT cell_mappings_url UNIQUE (url)
);

CREATE TABLE host_mappings (
    id BIGSERIAL NOT NULL,
    host VARCHAR(255) COLLATE "C" NOT NULL,
    cell_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT host_mappings_host UNIQUE (host),
    CONSTRAINT host_mappings_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id)
);
CREATE INDEX host_mappings_cell ON host_mappings (cell_id);

-- From a compute node, which is a root provider, to its host: what an allocation candidate has to be looked up with.
CREATE TABLE node_mappings (
    uuid VARCHAR(36) COLLATE "C" NOT NULL,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    host_id BIGINT NOT NULL,
    PRIMARY KEY (uuid),
    CONSTRAINT node_mappings_host_id FOREIGN KEY (host_id) REFERENCES host_mappings (id) ON DELETE CASCADE
);
CREATE INDEX node_mappings_host ON node_mappings (host_id);

CREATE TABLE instance_mappings (
    id BIGSERIAL NOT NULL,
    instance_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    cell_id BIGINT,
    project_id VARCHAR(255) COLLATE "C" NOT NULL,
    user_id VARCHAR(255) COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT instance_mappings_uuid UNIQUE (instance_uuid),
    CONSTRAINT instance_mappings_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id)
);
CREATE INDEX instance_mappings_project ON instance_mappings (project_id, cell_id);
-- This one pages through a cell in the order of ids.
CREATE INDEX instance_mappings_cell ON instance_mappings (cell_id, id);

CREATE TABLE request_specs (
    id BIGSERIAL NOT NULL,
    instance_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    spec TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT request_specs_uuid UNIQUE (instance_uuid),
    CONSTRAINT request_specs_instance FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE
);

CREATE TABLE build_requests (
    id BIGSERIAL NOT NULL,
    instance_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    project_id VARCHAR(255) COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    instance TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT build_requests_uuid UNIQUE (instance_uuid),
    CONSTRAINT build_requests_instance FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE
);
CREATE INDEX build_requests_project ON build_requests (project_id, created_at DESC, instance_uuid);
CREATE INDEX build_requests_newest ON build_requests (created_at DESC, instance_uuid);

-- Refers to nothing: a claim outlives what it was for, until the reconciler has removed the allocations.
CREATE TABLE claims (
    instance_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    node_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    cell_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (instance_uuid)
);

CREATE TABLE quotas (
    project_id VARCHAR(255) COLLATE "C" NOT NULL,
    resource VARCHAR(255) COLLATE "C" NOT NULL,
    hard_limit BIGINT NOT NULL,
    PRIMARY KEY (project_id, resource)
);

CREATE TABLE flavors (
    id BIGSERIAL NOT NULL,
    flavorid VARCHAR(255) COLLATE "C" NOT NULL,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    root_gb BIGINT NOT NULL,
    ephemeral_gb BIGINT NOT NULL,
    swap BIGINT NOT NULL,
    rxtx_factor DOUBLE PRECISION NOT NULL,
    is_public SMALLINT NOT NULL,
    disabled SMALLINT NOT NULL,
    description TEXT,
    extra_specs TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    PRIMARY KEY (id),
    CONSTRAINT flavors_flavorid UNIQUE (flavorid),
    CONSTRAINT flavors_name UNIQUE (name)
);
