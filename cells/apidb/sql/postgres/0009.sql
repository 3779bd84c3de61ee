-- Nodes of hosts that were unmapped, until their providers in Placement are in no aggregate of the compute API any more.
CREATE TABLE unmapped_nodes (
    uuid VARCHAR(36) COLLATE "C" NOT NULL,
    host VARCHAR(255) COLLATE "C" NOT NULL,
    PRIMARY KEY (uuid)
);
