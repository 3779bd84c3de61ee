-- Nodes of hosts that were unmapped, until their providers in Placement are in no aggregate of the compute API any more.
CREATE TABLE unmapped_nodes (
    uuid TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL
) WITHOUT ROWID;
