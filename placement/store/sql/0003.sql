-- What each host may report of itself: the rows with one id are a host. kind 0 is its name, and amount the second since
-- which it reports; kind 1 an amount of a resource class; kind 2 a kind of traits, with the amount 0.
CREATE TABLE ledger_hosts (
    id BIGINT NOT NULL,
    kind SMALLINT NOT NULL,
    name VARCHAR(255) $postgres(COLLATE "C") NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (id, kind, name)
) $sqlite(WITHOUT ROWID) $innodb;
