-- What clients asked for servers. A server's actions are counted from 1. finished_at is 0 until one has ended.
CREATE TABLE instance_actions (
    instance_uuid VARBINARY(36) NOT NULL,
    number BIGINT NOT NULL,
    action VARBINARY(255) NOT NULL,
    request_id VARBINARY(255) NOT NULL,
    user_id VARBINARY(255) NOT NULL,
    project_id VARBINARY(255) NOT NULL,
    host VARBINARY(255) NOT NULL,
    started_at BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    failed SMALLINT NOT NULL,
    details LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (instance_uuid, number)
);
