-- Nodes of hosts that were unmapped, until their providers in Placement are in no aggregate of the compute API any more.
CREATE TABLE unmapped_nodes (
    uuid VARCHAR(36) NOT NULL,
    host VARCHAR(255) NOT NULL,
    PRIMARY KEY (uuid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
