-- Server groups: a policy about the hosts of their members. max_server_per_host is that rule of anti-affinity; 0: there is none.
CREATE TABLE instance_groups (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    project_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    policy TEXT NOT NULL,
    max_server_per_host INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX instance_groups_project ON instance_groups (project_id);

-- A server is a member for as long as it has a mapping; deleted ones are not counted.
CREATE TABLE instance_group_member (
    id INTEGER NOT NULL PRIMARY KEY,
    group_id INTEGER NOT NULL REFERENCES instance_groups (id) ON DELETE CASCADE,
    instance_uuid TEXT NOT NULL UNIQUE REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE
);
CREATE INDEX instance_group_member_group ON instance_group_member (group_id);
