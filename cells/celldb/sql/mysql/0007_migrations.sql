-- Moves of servers between hosts. is_open: a host or the compute API has something to do about one. due: the compute API has.
CREATE TABLE migrations (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    uuid VARBINARY(36) NOT NULL UNIQUE,
    instance_uuid VARBINARY(36) NOT NULL,
    migration_type VARBINARY(255) NOT NULL,
    status VARBINARY(255) NOT NULL,
    source_host VARBINARY(255) NOT NULL,
    source_node VARBINARY(255) NOT NULL,
    source_node_uuid VARBINARY(255) NOT NULL,
    source_zone VARBINARY(255) NOT NULL,
    dest_host VARBINARY(255) NOT NULL,
    dest_node VARBINARY(255) NOT NULL,
    dest_node_uuid VARBINARY(255) NOT NULL,
    dest_zone VARBINARY(255) NOT NULL,
    old_vm_state VARBINARY(255) NOT NULL,
    offer LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    user_id VARBINARY(255) NOT NULL,
    project_id VARBINARY(255) NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    is_open SMALLINT NOT NULL,
    give_back SMALLINT NOT NULL,
    due SMALLINT NOT NULL
);
CREATE INDEX migrations_instance ON migrations (instance_uuid, is_open);
CREATE INDEX migrations_source ON migrations (is_open, source_host);
CREATE INDEX migrations_dest ON migrations (is_open, dest_host);
CREATE INDEX migrations_due ON migrations (due, id);
CREATE INDEX migrations_revision ON migrations (revision);
CREATE INDEX migrations_created ON migrations (created_at, id);
