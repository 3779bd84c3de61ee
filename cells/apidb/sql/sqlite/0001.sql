-- The API database before queued_for_delete. Times are microseconds since 1970, UTC.

CREATE TABLE cell_mappings (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL UNIQUE,
    disabled INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER
);

CREATE TABLE host_mappings (
    id INTEGER NOT NULL PRIMARY KEY,
    host TEXT NOT NULL UNIQUE,
    cell_id INTEGER NOT NULL REFERENCES cell_mappings (id),
    created_at INTEGER NOT NULL
);
CREATE INDEX host_mappings_cell ON host_mappings (cell_id);

-- From a compute node, which is a root provider, to its host: what an allocation candidate has to be looked up with.
CREATE TABLE node_mappings (
    uuid TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    host_id INTEGER NOT NULL REFERENCES host_mappings (id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX node_mappings_host ON node_mappings (host_id);

CREATE TABLE instance_mappings (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    instance_uuid TEXT NOT NULL UNIQUE,
    cell_id INTEGER REFERENCES cell_mappings (id),
    project_id TEXT NOT NULL,
    user_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER
);
CREATE INDEX instance_mappings_project ON instance_mappings (project_id, cell_id);
-- An index ends with the id: this one pages through a cell in the order of ids.
CREATE INDEX instance_mappings_cell ON instance_mappings (cell_id);

-- The sizes stand before the specification, so that summing them up does not read it.
CREATE TABLE request_specs (
    id INTEGER NOT NULL PRIMARY KEY,
    instance_uuid TEXT NOT NULL UNIQUE REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE,
    vcpus INTEGER NOT NULL,
    memory_mb INTEGER NOT NULL,
    spec TEXT NOT NULL
);

CREATE TABLE build_requests (
    id INTEGER NOT NULL PRIMARY KEY,
    instance_uuid TEXT NOT NULL UNIQUE REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE,
    project_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    instance TEXT NOT NULL
);
CREATE INDEX build_requests_project ON build_requests (project_id, created_at DESC, instance_uuid);
CREATE INDEX build_requests_newest ON build_requests (created_at DESC, instance_uuid);

-- Refers to nothing: a claim outlives what it was for, until somebody has seen to the allocations.
CREATE TABLE claims (
    instance_uuid TEXT NOT NULL PRIMARY KEY,
    node_uuid TEXT NOT NULL,
    cell_uuid TEXT NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE quotas (
    project_id TEXT NOT NULL,
    resource TEXT NOT NULL,
    hard_limit INTEGER NOT NULL,
    PRIMARY KEY (project_id, resource)
) WITHOUT ROWID;

CREATE TABLE flavors (
    id INTEGER NOT NULL PRIMARY KEY,
    flavorid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    vcpus INTEGER NOT NULL,
    memory_mb INTEGER NOT NULL,
    root_gb INTEGER NOT NULL,
    ephemeral_gb INTEGER NOT NULL,
    swap INTEGER NOT NULL,
    rxtx_factor REAL NOT NULL,
    is_public INTEGER NOT NULL,
    disabled INTEGER NOT NULL,
    description TEXT,
    extra_specs TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER
);
