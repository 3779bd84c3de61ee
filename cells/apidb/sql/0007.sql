-- Server groups: a policy about the hosts of their members. max_server_per_host is that rule of anti-affinity; 0: there is none.
CREATE TABLE instance_groups (
    id $rowid $sqlite(AUTOINCREMENT),
    uuid $text(36) NOT NULL $sqlite(UNIQUE),
    name $text(255) NOT NULL,
    project_id $text(255) NOT NULL,
    user_id $text(255) NOT NULL,
    policy $text(64) NOT NULL,
    max_server_per_host $int NOT NULL,
    created_at $time NOT NULL,
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT instance_groups_uuid UNIQUE (uuid)),
) $innodb;
CREATE INDEX instance_groups_project ON instance_groups (project_id);

-- A server is a member for as long as it has a mapping; deleted ones are not counted.
CREATE TABLE instance_group_member (
    id $rowid,
    group_id $int NOT NULL $sqlite(REFERENCES instance_groups (id) ON DELETE CASCADE),
    instance_uuid $text(36) NOT NULL $sqlite(UNIQUE REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE),
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT instance_group_member_instance UNIQUE (instance_uuid)),
    $servers(CONSTRAINT instance_group_member_group_id FOREIGN KEY (group_id) REFERENCES instance_groups (id) ON DELETE CASCADE),
    $servers(CONSTRAINT instance_group_member_instance_uuid FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE),
) $innodb;
CREATE INDEX instance_group_member_group ON instance_group_member (group_id);
