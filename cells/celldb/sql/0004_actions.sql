-- What clients asked for servers. A server's actions are counted from 1. finished_at is 0 until one has ended.
CREATE TABLE instance_actions (
    instance_uuid $bytes(36) NOT NULL,
    number $int NOT NULL,
    action $bytes(255) NOT NULL,
    request_id $bytes(255) NOT NULL,
    user_id $bytes(255) NOT NULL,
    project_id $bytes(255) NOT NULL,
    host $bytes(255) NOT NULL,
    started_at $time NOT NULL,
    finished_at $time NOT NULL,
    failed $small NOT NULL,
    details $longtext NOT NULL,
    PRIMARY KEY (instance_uuid, number)
) $sqlite(WITHOUT ROWID);
