-- What clients asked for servers. A server's actions are counted from 1. finished_at is 0 until one has ended.
CREATE TABLE instance_actions (
    instance_uuid TEXT NOT NULL,
    number INTEGER NOT NULL,
    action TEXT NOT NULL,
    request_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    host TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    details TEXT NOT NULL,
    PRIMARY KEY (instance_uuid, number)
) WITHOUT ROWID;
