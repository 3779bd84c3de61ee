-- Nodes of hosts that were unmapped, until their providers in Placement are in no aggregate of the compute API any more.
CREATE TABLE unmapped_nodes (
    uuid $text(36) NOT NULL $sqlite(PRIMARY KEY),
    host $text(255) NOT NULL,
    $servers(PRIMARY KEY (uuid)),
) $sqlite(WITHOUT ROWID) $innodb;
