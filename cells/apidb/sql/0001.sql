-- The API database before queued_for_delete. Times are microseconds since 1970, UTC. Texts are ordered by their bytes.

CREATE TABLE cell_mappings (
    id $rowid $sqlite(AUTOINCREMENT),
    uuid $text(36) NOT NULL $sqlite(UNIQUE),
    name $text(255) NOT NULL $sqlite(UNIQUE),
    url $text(512) NOT NULL $sqlite(UNIQUE),
    disabled $small NOT NULL DEFAULT 0,
    created_at $time NOT NULL,
    updated_at $time,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT cell_mappings_uuid UNIQUE (uuid)),
    $servers(CONSTRAINT cell_mappings_name UNIQUE (name)),
    $servers(CONSTRAINT cell_mappings_url UNIQUE (url)),
) $innodb;

CREATE TABLE host_mappings (
    id $rowid,
    host $text(255) NOT NULL $sqlite(UNIQUE),
    cell_id $int NOT NULL $sqlite(REFERENCES cell_mappings (id)),
    created_at $time NOT NULL,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT host_mappings_host UNIQUE (host)),
    $servers(CONSTRAINT host_mappings_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id)),
) $innodb;
CREATE INDEX host_mappings_cell ON host_mappings (cell_id);

-- From a compute node, which is a root provider, to its host: what an allocation candidate has to be looked up with.
CREATE TABLE node_mappings (
    uuid $text(36) NOT NULL $sqlite(PRIMARY KEY),
    name $text(255) NOT NULL,
    host_id $int NOT NULL $sqlite(REFERENCES host_mappings (id) ON DELETE CASCADE),
    $servers(PRIMARY KEY (uuid)),
    $servers(CONSTRAINT node_mappings_host_id FOREIGN KEY (host_id) REFERENCES host_mappings (id) ON DELETE CASCADE),
) $sqlite(WITHOUT ROWID) $innodb;
CREATE INDEX node_mappings_host ON node_mappings (host_id);

CREATE TABLE instance_mappings (
    id $rowid $sqlite(AUTOINCREMENT),
    instance_uuid $text(36) NOT NULL $sqlite(UNIQUE),
    cell_id $int $sqlite(REFERENCES cell_mappings (id)),
    project_id $text(255) NOT NULL,
    user_id $text(255),
    created_at $time NOT NULL,
    updated_at $time,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT instance_mappings_uuid UNIQUE (instance_uuid)),
    $servers(CONSTRAINT instance_mappings_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id)),
) $innodb;
CREATE INDEX instance_mappings_project ON instance_mappings (project_id, cell_id);
-- This one pages through a cell in the order of ids: an index of SQLite ends with the id.
CREATE INDEX instance_mappings_cell ON instance_mappings $sqlite((cell_id)) $servers((cell_id, id));

-- The sizes stand before the specification, so that summing them up does not read it.
CREATE TABLE request_specs (
    id $rowid,
    instance_uuid $text(36) NOT NULL $sqlite(UNIQUE REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE),
    vcpus $int NOT NULL,
    memory_mb $int NOT NULL,
    spec $notmysql(TEXT) $mysql(LONGTEXT) NOT NULL,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT request_specs_uuid UNIQUE (instance_uuid)),
    $servers(CONSTRAINT request_specs_instance FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE),
) $innodb;

CREATE TABLE build_requests (
    id $rowid,
    instance_uuid $text(36) NOT NULL $sqlite(UNIQUE REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE),
    project_id $text(255) NOT NULL,
    created_at $time NOT NULL,
    instance $notmysql(TEXT) $mysql(LONGTEXT) NOT NULL,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT build_requests_uuid UNIQUE (instance_uuid)),
    $servers(CONSTRAINT build_requests_instance FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE),
) $innodb;
CREATE INDEX build_requests_project ON build_requests (project_id, created_at DESC, instance_uuid);
CREATE INDEX build_requests_newest ON build_requests (created_at DESC, instance_uuid);

-- Refers to nothing: a claim outlives what it was for, until the reconciler has removed the allocations.
CREATE TABLE claims (
    instance_uuid $text(36) NOT NULL $sqlite(PRIMARY KEY),
    node_uuid $text(36) NOT NULL,
    cell_uuid $text(36) NOT NULL,
    created_at $time NOT NULL,
    $servers(PRIMARY KEY (instance_uuid)),
) $sqlite(WITHOUT ROWID) $innodb;

CREATE TABLE quotas (
    project_id $text(255) NOT NULL,
    resource $text(255) NOT NULL,
    hard_limit $int NOT NULL,
    PRIMARY KEY (project_id, resource)
) $sqlite(WITHOUT ROWID) $innodb;

CREATE TABLE flavors (
    id $rowid,
    flavorid $text(255) NOT NULL $sqlite(UNIQUE),
    name $text(255) NOT NULL $sqlite(UNIQUE),
    vcpus $int NOT NULL,
    memory_mb $int NOT NULL,
    root_gb $int NOT NULL,
    ephemeral_gb $int NOT NULL,
    swap $int NOT NULL,
    rxtx_factor $sqlite(REAL) $servers(DOUBLE PRECISION) NOT NULL,
    is_public $small NOT NULL,
    disabled $small NOT NULL,
    description $notmysql(TEXT) $mysql(LONGTEXT),
    extra_specs $notmysql(TEXT) $mysql(LONGTEXT) NOT NULL,
    created_at $time NOT NULL,
    updated_at $time,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT flavors_flavorid UNIQUE (flavorid)),
    $servers(CONSTRAINT flavors_name UNIQUE (name)),
) $innodb;
