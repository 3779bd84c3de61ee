-- Moves of servers between hosts. is_open: a host or the compute API has something to do about one. due: the compute API has.
CREATE TABLE migrations (
    id $id,
    uuid $bytes(36) NOT NULL UNIQUE,
    instance_uuid $bytes(36) NOT NULL,
    migration_type $bytes(255) NOT NULL,
    status $bytes(255) NOT NULL,
    source_host $bytes(255) NOT NULL,
    source_node $bytes(255) NOT NULL,
    source_node_uuid $bytes(255) NOT NULL,
    source_zone $bytes(255) NOT NULL,
    dest_host $bytes(255) NOT NULL,
    dest_node $bytes(255) NOT NULL,
    dest_node_uuid $bytes(255) NOT NULL,
    dest_zone $bytes(255) NOT NULL,
    old_vm_state $bytes(255) NOT NULL,
    offer $longtext NOT NULL,
    user_id $bytes(255) NOT NULL,
    project_id $bytes(255) NOT NULL,
    created_at $time NOT NULL,
    updated_at $time NOT NULL,
    revision $int NOT NULL,
    is_open $small NOT NULL,
    give_back $small NOT NULL,
    due $small NOT NULL
);
CREATE INDEX migrations_instance ON migrations (instance_uuid, is_open);
CREATE INDEX migrations_source ON migrations (is_open, source_host);
CREATE INDEX migrations_dest ON migrations (is_open, dest_host);
CREATE INDEX migrations_due ON migrations (due, id);
CREATE INDEX migrations_revision ON migrations (revision);
CREATE INDEX migrations_created ON migrations (created_at, id);
