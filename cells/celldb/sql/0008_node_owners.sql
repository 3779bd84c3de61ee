-- How the host of a node showed who it is, and whether its certificate names the node. absent_at: since when it does not report the node. forgotten: the row is deleted when the compute API has forgotten the node too.
ALTER TABLE compute_nodes ADD COLUMN auth $bytes(255) NOT NULL DEFAULT '';
ALTER TABLE compute_nodes ADD COLUMN named $small NOT NULL DEFAULT 0;
ALTER TABLE compute_nodes ADD COLUMN absent_at $time NOT NULL DEFAULT 0;
ALTER TABLE compute_nodes ADD COLUMN forgotten $small NOT NULL DEFAULT 0;
-- Hosts that report a node which another host has.
CREATE TABLE node_claims (
    uuid $bytes(36) NOT NULL,
    host $bytes(255) NOT NULL,
    auth $bytes(255) NOT NULL,
    named $small NOT NULL,
    since $time NOT NULL,
    PRIMARY KEY (uuid, host)
) $sqlite(WITHOUT ROWID);
CREATE INDEX node_claims_host ON node_claims (host);
-- Why the compute API does not use a node.
CREATE TABLE node_problems (
    uuid $bytes(36) NOT NULL PRIMARY KEY,
    problem $bytes(4000) NOT NULL
) $sqlite(WITHOUT ROWID);
