-- Times are microseconds since 1970, 0 when there is none. What queries sort by is never NULL. Texts that are compared are
-- VARBINARY: collations of MySQL and MariaDB that both have take "a" and "a " for equal. In 1020 bytes fit 255 characters.
CREATE TABLE cell (
    one INTEGER NOT NULL PRIMARY KEY,
    name VARBINARY(255) NOT NULL,
    epoch VARBINARY(36) NOT NULL,
    revision BIGINT NOT NULL
);

CREATE TABLE services (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    uuid VARBINARY(36) NOT NULL UNIQUE,
    host VARBINARY(255) NOT NULL UNIQUE,
    version VARBINARY(255) NOT NULL,
    disabled SMALLINT NOT NULL DEFAULT 0,
    disabled_reason VARBINARY(255) NOT NULL DEFAULT '',
    forced_down SMALLINT NOT NULL DEFAULT 0,
    stopped SMALLINT NOT NULL DEFAULT 0,
    last_seen_up BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    revision BIGINT NOT NULL
);

-- present: its host named it in its last report. Another host may take over one that is not.
CREATE TABLE compute_nodes (
    uuid VARBINARY(36) NOT NULL PRIMARY KEY,
    host VARBINARY(255) NOT NULL,
    hypervisor_hostname VARBINARY(255) NOT NULL,
    mapped SMALLINT NOT NULL DEFAULT 0,
    present SMALLINT NOT NULL DEFAULT 1,
    created_at BIGINT NOT NULL,
    INDEX compute_nodes_host (host)
);

-- gone is 0 for living servers, 1 for softly deleted and 2 for deleted ones. changed_at is updated_at, or created_at before there is one.
-- The last three columns are for indexes: older has the newest first, as MariaDB 10.6 has no descending indexes; the others are what
-- partial indexes have elsewhere: host_present is the host of servers that it may have to do something about, soft_at when a server
-- was softly deleted.
CREATE TABLE instances (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    uuid VARBINARY(36) NOT NULL UNIQUE,
    project_id VARBINARY(255) NOT NULL,
    user_id VARBINARY(255) NOT NULL,
    display_name VARBINARY(1020) NOT NULL,
    display_description VARBINARY(1020),
    hostname VARBINARY(255) NOT NULL,
    image_ref VARBINARY(255) NOT NULL,
    flavor_id VARBINARY(255) NOT NULL,
    vcpus BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    availability_zone VARBINARY(255) NOT NULL,
    config_drive SMALLINT NOT NULL,
    disk_config VARBINARY(255) NOT NULL,
    access_ip_v4 VARBINARY(255) NOT NULL,
    access_ip_v6 VARBINARY(255) NOT NULL,
    locked SMALLINT NOT NULL,
    reservation_id VARBINARY(255) NOT NULL,
    launch_index BIGINT NOT NULL,
    host VARBINARY(255) NOT NULL,
    node VARBINARY(255) NOT NULL,
    node_uuid VARBINARY(36) NOT NULL,
    vm_state VARBINARY(255) NOT NULL,
    task_state VARBINARY(255) NOT NULL,
    power_state INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    launched_at BIGINT NOT NULL,
    terminated_at BIGINT NOT NULL,
    deleted_at BIGINT NOT NULL,
    inserted_at BIGINT NOT NULL,
    gone SMALLINT NOT NULL,
    hidden SMALLINT NOT NULL,
    cleanup_due SMALLINT NOT NULL,
    unfreed SMALLINT NOT NULL,
    revision BIGINT NOT NULL,
    want_revision BIGINT NOT NULL,
    digest VARBINARY(64) NOT NULL,
    tags LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    metadata LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    rest LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    older BIGINT GENERATED ALWAYS AS (-created_at) STORED,
    host_present VARBINARY(255) GENERATED ALWAYS AS (CASE WHEN hidden = 0 AND (gone < 2 OR cleanup_due = 1) THEN host ELSE '' END) STORED,
    soft_at BIGINT GENERATED ALWAYS AS (CASE WHEN gone < 2 THEN deleted_at ELSE 0 END) STORED,
    INDEX instances_project_living (project_id, hidden, gone, older, uuid),
    INDEX instances_living (hidden, gone, older, uuid),
    INDEX instances_project (project_id, hidden, older, uuid),
    INDEX instances_created (hidden, older, uuid),
    INDEX instances_usage (project_id, hidden, gone, vcpus, memory_mb),
    INDEX instances_host (host, revision),
    INDEX instances_host_present (host_present),
    INDEX instances_hidden (hidden, inserted_at),
    INDEX instances_unfreed (unfreed, deleted_at),
    INDEX instances_softly_deleted (soft_at),
    INDEX instances_states (hidden, gone, vm_state),
    INDEX instances_revision (revision)
);
