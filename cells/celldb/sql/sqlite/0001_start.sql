-- Times are microseconds since 1970, 0 when there is none. What queries sort by is never NULL.
CREATE TABLE cell (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL,
    epoch TEXT NOT NULL,
    revision INTEGER NOT NULL
);

CREATE TABLE services (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL UNIQUE,
    version TEXT NOT NULL,
    disabled INTEGER NOT NULL DEFAULT 0,
    disabled_reason TEXT NOT NULL DEFAULT '',
    forced_down INTEGER NOT NULL DEFAULT 0,
    stopped INTEGER NOT NULL DEFAULT 0,
    last_seen_up INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    revision INTEGER NOT NULL
);

-- present: its host named it in its last report. Another host may take over one that is not.
CREATE TABLE compute_nodes (
    uuid TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    hypervisor_hostname TEXT NOT NULL,
    mapped INTEGER NOT NULL DEFAULT 0,
    present INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX compute_nodes_host ON compute_nodes (host);

-- gone is 0 for living servers, 1 for softly deleted and 2 for deleted ones. changed_at is updated_at, or created_at before there is one.
CREATE TABLE instances (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    display_name TEXT NOT NULL,
    display_description TEXT,
    hostname TEXT NOT NULL,
    image_ref TEXT NOT NULL,
    flavor_id TEXT NOT NULL,
    vcpus INTEGER NOT NULL,
    memory_mb INTEGER NOT NULL,
    availability_zone TEXT NOT NULL,
    config_drive INTEGER NOT NULL,
    disk_config TEXT NOT NULL,
    access_ip_v4 TEXT NOT NULL,
    access_ip_v6 TEXT NOT NULL,
    locked INTEGER NOT NULL,
    reservation_id TEXT NOT NULL,
    launch_index INTEGER NOT NULL,
    host TEXT NOT NULL,
    node TEXT NOT NULL,
    node_uuid TEXT NOT NULL,
    vm_state TEXT NOT NULL,
    task_state TEXT NOT NULL,
    power_state INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    launched_at INTEGER NOT NULL,
    terminated_at INTEGER NOT NULL,
    deleted_at INTEGER NOT NULL,
    inserted_at INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    hidden INTEGER NOT NULL,
    cleanup_due INTEGER NOT NULL,
    unfreed INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    want_revision INTEGER NOT NULL,
    digest TEXT NOT NULL,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    rest TEXT NOT NULL
);
CREATE INDEX instances_project_living ON instances (project_id, gone, created_at DESC, uuid) WHERE hidden = 0;
CREATE INDEX instances_living ON instances (gone, created_at DESC, uuid) WHERE hidden = 0;
CREATE INDEX instances_project ON instances (project_id, created_at DESC, uuid) WHERE hidden = 0;
CREATE INDEX instances_created ON instances (created_at DESC, uuid) WHERE hidden = 0;
CREATE INDEX instances_usage ON instances (project_id, gone, vcpus, memory_mb) WHERE hidden = 0;
CREATE INDEX instances_host ON instances (host, revision) WHERE hidden = 0 AND host <> '';
CREATE INDEX instances_host_present ON instances (host) WHERE hidden = 0 AND host <> '' AND (gone < 2 OR cleanup_due = 1);
CREATE INDEX instances_hidden ON instances (inserted_at) WHERE hidden = 1;
CREATE INDEX instances_unfreed ON instances (deleted_at) WHERE unfreed = 1;
CREATE INDEX instances_softly_deleted ON instances (deleted_at) WHERE gone < 2 AND deleted_at > 0;
