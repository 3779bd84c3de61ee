-- What clients asked for servers. A server's actions are counted from 1. finished_at is 0 until one has ended.
CREATE TABLE instance_actions (
    instance_uuid TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    failed SMALLINT NOT NULL,
    details TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (instance_uuid, number)
);
