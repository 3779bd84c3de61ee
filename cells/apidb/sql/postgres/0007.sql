-- Server groups: a policy about the hosts of their members. max_server_per_host is that rule of anti-affinity; 0: there is none.
CREATE TABLE instance_groups (
    id BIGSERIAL NOT NULL,
    uuid VARCHAR(36) COLLATE "C" NOT NULL,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    project_id VARCHAR(255) COLLATE "C" NOT NULL,
    user_id VARCHAR(255) COLLATE "C" NOT NULL,
    policy VARCHAR(64) COLLATE "C" NOT NULL,
    max_server_per_host BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT instance_groups_uuid UNIQUE (uuid)
);
CREATE INDEX instance_groups_project ON instance_groups (project_id);

-- A server is a member for as long as it has a mapping; deleted ones are not counted.
CREATE TABLE instance_group_member (
    id BIGSERIAL NOT NULL,
    group_id BIGINT NOT NULL,
    instance_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT instance_group_member_instance UNIQUE (instance_uuid),
    CONSTRAINT instance_group_member_group_id FOREIGN KEY (group_id) REFERENCES instance_groups (id) ON DELETE CASCADE,
    CONSTRAINT instance_group_member_instance_uuid FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE
);
CREATE INDEX instance_group_member_group ON instance_group_member (group_id);
