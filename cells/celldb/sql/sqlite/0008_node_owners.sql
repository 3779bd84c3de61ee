-- How the host of a node showed who it is, and whether its certificate names the node. absent_at: since when it does not report the node. forgotten: the row is deleted when the compute API has forgotten the node too.
ALTER TABLE compute_nodes ADD COLUMN auth TEXT NOT NULL DEFAULT '';
ALTER TABLE compute_nodes ADD COLUMN named INTEGER NOT NULL DEFAULT 0;
ALTER TABLE compute_nodes ADD COLUMN absent_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE compute_nodes ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
-- Hosts that report a node which another host has.
CREATE TABLE node_claims (
    uuid TEXT NOT NULL,
    host TEXT NOT NULL,
    auth TEXT NOT NULL,
    named INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (uuid, host)
) WITHOUT ROWID;
CREATE INDEX node_claims_host ON node_claims (host);
-- Why the compute API does not use a node.
CREATE TABLE node_problems (
    uuid TEXT NOT NULL PRIMARY KEY,
    problem TEXT NOT NULL
) WITHOUT ROWID;
