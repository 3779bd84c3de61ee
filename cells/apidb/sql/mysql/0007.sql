-- Server groups: a policy about the hosts of their members. max_server_per_host is that rule of anti-affinity; 0: there is none.
CREATE TABLE instance_groups (
    id BIGINT NOT NULL AUTO_INCREMENT,
    uuid VARCHAR(36) NOT NULL,
    name VARCHAR(255) NOT NULL,
    project_id VARCHAR(255) NOT NULL,
    user_id VARCHAR(255) NOT NULL,
    policy VARCHAR(64) NOT NULL,
    max_server_per_host BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT instance_groups_uuid UNIQUE (uuid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX instance_groups_project ON instance_groups (project_id);

-- A server is a member for as long as it has a mapping; deleted ones are not counted.
CREATE TABLE instance_group_member (
    id BIGINT NOT NULL AUTO_INCREMENT,
    group_id BIGINT NOT NULL,
    instance_uuid VARCHAR(36) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT instance_group_member_instance UNIQUE (instance_uuid),
    CONSTRAINT instance_group_member_group_id FOREIGN KEY (group_id) REFERENCES instance_groups (id) ON DELETE CASCADE,
    CONSTRAINT instance_group_member_instance_uuid FOREIGN KEY (instance_uuid) REFERENCES instance_mappings (instance_uuid) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX instance_group_member_group ON instance_group_member (group_id);
