-- How the host of a node showed who it is, and whether its certificate names the node. absent_at: since when it does not report the node. forgotten: the row is deleted when the compute API has forgotten the node too.
ALTER TABLE compute_nodes ADD COLUMN auth TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE compute_nodes ADD COLUMN named SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE compute_nodes ADD COLUMN absent_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE compute_nodes ADD COLUMN forgotten SMALLINT NOT NULL DEFAULT 0;
-- Hosts that report a node which another host has.
CREATE TABLE node_claims (
    uuid TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    auth TEXT COLLATE "C" NOT NULL,
    named SMALLINT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (uuid, host)
);
CREATE INDEX node_claims_host ON node_claims (host);
-- Why the compute API does not use a node.
CREATE TABLE node_problems (
    uuid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    problem TEXT COLLATE "C" NOT NULL
);
