-- Hosts that may have a certificate: invited by a token, enrolled with a key, evicted. Times are 0 and texts '' before they are known.
CREATE TABLE enrolments (
    host TEXT NOT NULL PRIMARY KEY,
    cell_uuid TEXT NOT NULL,
    state TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    invited_until INTEGER NOT NULL,
    token_id TEXT NOT NULL,
    token_salt TEXT NOT NULL,
    token_digest TEXT NOT NULL,
    key_digest TEXT NOT NULL,
    next_key_digest TEXT NOT NULL,
    enrolled_at INTEGER NOT NULL,
    enrolled_from TEXT NOT NULL,
    serial TEXT NOT NULL,
    issued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    denied_before INTEGER NOT NULL,
    evicted_at INTEGER NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX enrolments_token ON enrolments (token_id);
-- The compute nodes of the certificates of these hosts. A node is of one host.
CREATE TABLE enrolled_nodes (
    uuid TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    name TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX enrolled_nodes_host ON enrolled_nodes (host);
