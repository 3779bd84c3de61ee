-- Hosts that may have a certificate: invited by a token, enrolled with a key, evicted. Times are 0 and texts '' before they are known.
CREATE TABLE enrolments (
    host $text(255) NOT NULL $sqlite(PRIMARY KEY),
    cell_uuid $text(36) NOT NULL,
    state $text(16) NOT NULL,
    created_by $text(255) NOT NULL,
    created_at $time NOT NULL,
    invited_until $time NOT NULL,
    token_id $text(64) NOT NULL,
    token_salt $text(64) NOT NULL,
    token_digest $text(64) NOT NULL,
    key_digest $text(64) NOT NULL,
    next_key_digest $text(64) NOT NULL,
    enrolled_at $time NOT NULL,
    enrolled_from $text(255) NOT NULL,
    serial $text(64) NOT NULL,
    issued_at $time NOT NULL,
    expires_at $time NOT NULL,
    denied_before $time NOT NULL,
    evicted_at $time NOT NULL,
    reason $text(1000) NOT NULL,
    $servers(PRIMARY KEY (host)),
    $mysql(KEY enrolments_token (token_id)),
) $sqlite(WITHOUT ROWID) $innodb;
$notmysql(CREATE INDEX enrolments_token ON enrolments (token_id));
-- The compute nodes of the certificates of these hosts. A node is of one host.
CREATE TABLE enrolled_nodes (
    uuid $text(36) NOT NULL $sqlite(PRIMARY KEY),
    host $text(255) NOT NULL,
    name $text(255) NOT NULL,
    $servers(PRIMARY KEY (uuid)),
    $mysql(KEY enrolled_nodes_host (host)),
) $sqlite(WITHOUT ROWID) $innodb;
$notmysql(CREATE INDEX enrolled_nodes_host ON enrolled_nodes (host));
