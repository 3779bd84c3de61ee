-- What lets several servers share one database. ledger_version is moved by
-- the last statement of every commit; ledger_changes says what each version
-- changed, never the values. There is one shard, number 0.

CREATE TABLE ledger_version (
    shard INTEGER NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (shard)
);
INSERT INTO ledger_version (shard, version) VALUES (0, 0) ON CONFLICT DO NOTHING;

CREATE TABLE ledger_changes (
    shard INTEGER NOT NULL,
    version BIGINT NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    id BIGINT NOT NULL,
    uuid VARCHAR(36),
    PRIMARY KEY (shard, version, seq)
);
