-- Moves of servers between hosts. is_open: a host or the compute API has something to do about one. due: the compute API has.
CREATE TABLE migrations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    instance_uuid TEXT NOT NULL,
    migration_type TEXT NOT NULL,
    status TEXT NOT NULL,
    source_host TEXT NOT NULL,
    source_node TEXT NOT NULL,
    source_node_uuid TEXT NOT NULL,
    source_zone TEXT NOT NULL,
    dest_host TEXT NOT NULL,
    dest_node TEXT NOT NULL,
    dest_node_uuid TEXT NOT NULL,
    dest_zone TEXT NOT NULL,
    old_vm_state TEXT NOT NULL,
    offer TEXT NOT NULL,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    give_back INTEGER NOT NULL,
    due INTEGER NOT NULL
);
CREATE INDEX migrations_instance ON migrations (instance_uuid, is_open);
CREATE INDEX migrations_source ON migrations (is_open, source_host);
CREATE INDEX migrations_dest ON migrations (is_open, dest_host);
CREATE INDEX migrations_due ON migrations (due, id);
CREATE INDEX migrations_revision ON migrations (revision);
CREATE INDEX migrations_created ON migrations (created_at, id);
