-- Times are microseconds since 1970, 0 when there is none. What queries sort by is never NULL.
-- Texts that are compared are $bytes: collations of MySQL and MariaDB that both have take "a" and
-- "a " for equal. In 1020 bytes fit 255 characters.
CREATE TABLE cell (
    one INTEGER $sqlite(PRIMARY KEY CHECK (one = 1)) $servers(NOT NULL PRIMARY KEY),
    name $bytes(255) NOT NULL,
    epoch $bytes(36) NOT NULL,
    revision $int NOT NULL
);

CREATE TABLE services (
    id $id,
    uuid $bytes(36) NOT NULL UNIQUE,
    host $bytes(255) NOT NULL UNIQUE,
    version $bytes(255) NOT NULL,
    disabled $small NOT NULL DEFAULT 0,
    disabled_reason $bytes(255) NOT NULL DEFAULT '',
    forced_down $small NOT NULL DEFAULT 0,
    stopped $small NOT NULL DEFAULT 0,
    last_seen_up $time NOT NULL,
    created_at $time NOT NULL,
    updated_at $time NOT NULL,
    revision $int NOT NULL
);

-- present: its host named it in its last report. Another host may take over one that is not.
CREATE TABLE compute_nodes (
    uuid $bytes(36) $servers(NOT NULL) PRIMARY KEY,
    host $bytes(255) NOT NULL,
    hypervisor_hostname $bytes(255) NOT NULL,
    mapped $small NOT NULL DEFAULT 0,
    present $small NOT NULL DEFAULT 1,
    created_at $time NOT NULL,
    $mysql(INDEX compute_nodes_host (host)),
) $sqlite(WITHOUT ROWID);
$notmysql(CREATE INDEX compute_nodes_host ON compute_nodes (host));

-- gone is 0 for living servers, 1 for softly deleted and 2 for deleted ones. changed_at is
-- updated_at, or created_at before there is one. The last three columns of MariaDB are for indexes:
-- older has the newest first, as MariaDB 10.6 has no descending indexes; the others are what partial
-- indexes have elsewhere: host_present is the host of servers that it may have to do something
-- about, soft_at when a server was softly deleted.
CREATE TABLE instances (
    id $id,
    uuid $bytes(36) NOT NULL UNIQUE,
    project_id $bytes(255) NOT NULL,
    user_id $bytes(255) NOT NULL,
    display_name $bytes(1020) NOT NULL,
    display_description $bytes(1020),
    hostname $bytes(255) NOT NULL,
    image_ref $bytes(255) NOT NULL,
    flavor_id $bytes(255) NOT NULL,
    vcpus $int NOT NULL,
    memory_mb $int NOT NULL,
    availability_zone $bytes(255) NOT NULL,
    config_drive $small NOT NULL,
    disk_config $bytes(255) NOT NULL,
    access_ip_v4 $bytes(255) NOT NULL,
    access_ip_v6 $bytes(255) NOT NULL,
    locked $small NOT NULL,
    reservation_id $bytes(255) NOT NULL,
    launch_index $int NOT NULL,
    host $bytes(255) NOT NULL,
    node $bytes(255) NOT NULL,
    node_uuid $bytes(36) NOT NULL,
    vm_state $bytes(255) NOT NULL,
    task_state $bytes(255) NOT NULL,
    power_state INTEGER NOT NULL,
    created_at $time NOT NULL,
    updated_at $time NOT NULL,
    changed_at $time NOT NULL,
    launched_at $time NOT NULL,
    terminated_at $time NOT NULL,
    deleted_at $time NOT NULL,
    inserted_at $time NOT NULL,
    gone $small NOT NULL,
    hidden $small NOT NULL,
    cleanup_due $small NOT NULL,
    unfreed $small NOT NULL,
    revision $int NOT NULL,
    want_revision $int NOT NULL,
    digest $bytes(64) NOT NULL,
    tags $longtext NOT NULL,
    metadata $longtext NOT NULL,
    rest $longtext NOT NULL,
    $mysql(older BIGINT GENERATED ALWAYS AS (-created_at) STORED),
    $mysql(host_present VARBINARY(255) GENERATED ALWAYS AS (CASE WHEN hidden = 0 AND (gone < 2 OR cleanup_due = 1) THEN host ELSE '' END) STORED),
    $mysql(soft_at BIGINT GENERATED ALWAYS AS (CASE WHEN gone < 2 THEN deleted_at ELSE 0 END) STORED),
    $mysql(INDEX instances_project_living (project_id, hidden, gone, older, uuid)),
    $mysql(INDEX instances_living (hidden, gone, older, uuid)),
    $mysql(INDEX instances_project (project_id, hidden, older, uuid)),
    $mysql(INDEX instances_created (hidden, older, uuid)),
    $mysql(INDEX instances_usage (project_id, hidden, gone, vcpus, memory_mb)),
    $mysql(INDEX instances_host (host, revision)),
    $mysql(INDEX instances_host_present (host_present)),
    $mysql(INDEX instances_hidden (hidden, inserted_at)),
    $mysql(INDEX instances_unfreed (unfreed, deleted_at)),
    $mysql(INDEX instances_softly_deleted (soft_at)),
    $mysql(INDEX instances_states (hidden, gone, vm_state)),
    $mysql(INDEX instances_revision (revision)),
);
$notmysql(CREATE INDEX instances_project_living ON instances (project_id, gone, created_at DESC, uuid) WHERE hidden = 0);
$notmysql(CREATE INDEX instances_living ON instances (gone, created_at DESC, uuid) WHERE hidden = 0);
$notmysql(CREATE INDEX instances_project ON instances (project_id, created_at DESC, uuid) WHERE hidden = 0);
$notmysql(CREATE INDEX instances_created ON instances (created_at DESC, uuid) WHERE hidden = 0);
$notmysql(CREATE INDEX instances_usage ON instances (project_id, gone, vcpus, memory_mb) WHERE hidden = 0);
$notmysql(CREATE INDEX instances_host ON instances (host, revision) WHERE hidden = 0 AND host <> '');
$notmysql(CREATE INDEX instances_host_present ON instances (host) WHERE hidden = 0 AND host <> '' AND (gone < 2 OR cleanup_due = 1));
$notmysql(CREATE INDEX instances_hidden ON instances (inserted_at) WHERE hidden = 1);
$notmysql(CREATE INDEX instances_unfreed ON instances (deleted_at) WHERE unfreed = 1);
$notmysql(CREATE INDEX instances_softly_deleted ON instances (deleted_at) WHERE gone < 2 AND deleted_at > 0);
$postgres(CREATE INDEX instances_revision ON instances (revision));
