-- What lets several servers share one database. ledger_version is moved by
-- the last statement of every commit; ledger_changes says what each version
-- changed, never the values. There is one shard, number 0. Its first version in
-- a database of servers is random: a server that was stopped while the database
-- went back to OpenStack Placement and came again does not take it for the one
-- that it knows.

CREATE TABLE ledger_version (
    shard INTEGER NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (shard)
) $innodb;
$sqlite(INSERT INTO ledger_version (shard, version) VALUES (0, 0));
$mysql(INSERT IGNORE INTO ledger_version (shard, version) VALUES (0, FLOOR(1 + RAND() * 1000000000000000)));
$postgres(INSERT INTO ledger_version (shard, version) VALUES (0, CAST(FLOOR(1 + RANDOM() * 1000000000000000) AS BIGINT)) ON CONFLICT DO NOTHING);

CREATE TABLE ledger_changes (
    shard INTEGER NOT NULL,
    version BIGINT NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    id BIGINT NOT NULL,
    uuid VARCHAR(36),
    PRIMARY KEY (shard, version, seq)
) $sqlite(WITHOUT ROWID) $innodb;

-- The processes that have a database of servers open. beat grows while one lives. Beside one with alone = 1
-- no other may have it open. knows is how many steps of the schema its program knows.
$servers(
CREATE TABLE ledger_servers (
    token VARCHAR(36) NOT NULL,
    name VARCHAR(255) NOT NULL,
    beat BIGINT NOT NULL,
    alone SMALLINT NOT NULL,
    knows INTEGER NOT NULL,
    PRIMARY KEY (token)
) $innodb;
)
